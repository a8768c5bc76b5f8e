package agent

import (
	"context"
	"errors"

	"github.com/weftnet/weft/pod"
)

// selected is who looks up the networks that pods select; nil: it is Multus' business, or there is no cluster.
func (a *Agent) selected() func(context.Context, *pod.AddPod) ([]pod.InterfaceRequest, error) {
	if a.cluster == nil || a.config.Kubernetes.Multus {
		return nil
	}
	return a.lookUp
}

// lookUp makes a pod's selections the interfaces that their definitions say.
func (a *Agent) lookUp(ctx context.Context, ev *pod.AddPod) ([]pod.InterfaceRequest, error) {
	selections, err := pod.Selections(ev.Annotations, ev.ID.Namespace)
	if err != nil {
		return nil, refusedSelection(ev, pod.CodeInvalidAnnotation, err)
	}
	var requests []pod.InterfaceRequest
	for _, s := range selections {
		found, err := a.cluster.Definition(ctx, s)
		if err != nil {
			return nil, refusedSelection(ev, pod.CodeTryAgain, err)
		}
		d, err := pod.ParseDefinition(found.Config)
		switch {
		case errors.Is(err, pod.ErrOtherPlugin):
			return nil, pod.Errorf(pod.CodeUnknownNetwork, "%s: annotation %s: NetworkAttachmentDefinition %s: %w: "+
				"such interfaces are made where Multus is on the node, with kubernetes.multus in the agent's configuration", ev, pod.AnnotationNetworks, s.Definition(), err)
		case err != nil:
			return nil, pod.Errorf(pod.CodeInvalidConfig, "%s: NetworkAttachmentDefinition %s: config: %w", ev, s.Definition(), err)
		}
		requests = append(requests, d.Request(s))
	}
	return requests, nil
}

// refusedSelection says which pod an error is about; its own code counts.
func refusedSelection(ev *pod.AddPod, code uint, err error) error {
	if own, ok := errors.AsType[*pod.Error](err); ok {
		code = own.Code
	}
	return pod.Errorf(code, "%s: %w", ev, err)
}
