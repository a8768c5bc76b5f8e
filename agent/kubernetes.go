package agent

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/agent/statefile"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/k8s/client"
	"github.com/weftnet/weft/k8s/events"
	"github.com/weftnet/weft/k8s/networkstatus"
	"github.com/weftnet/weft/k8s/nodeview"
	"github.com/weftnet/weft/k8s/pods"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/podmanager"
)

// Keys in the bucket "cluster" of the state file.
const (
	viewKey   = "view"   // the last view of the cluster
	blocksKey = "blocks" // the node's address blocks

	announcedKey = "announced" // UID of the announced Node
)

// assembleCluster prepares the connection to the API server. It sends one request: for the Node.
func (a *Agent) assembleCluster(ctx context.Context) error {
	if a.config.Kubernetes.Mode == config.NoCluster {
		return nil
	}
	connection, err := client.Connection(a.config.Kubernetes.Kubeconfig)
	if err != nil {
		return err
	}
	if a.client, err = client.New(connection); err != nil {
		return err
	}
	if a.config.Kubernetes.Node, err = a.config.Kubernetes.Name(); err != nil {
		return err
	}
	config := nodeview.Config{
		Node: a.config.Kubernetes.Node, Client: a.client, Log: a.log.With("room", "k8s"), OnPod: pods.Annotated(a.noticeEdit),
	}
	var known nodeview.View
	was, err := a.state.Get(statefile.BucketCluster, viewKey, &known)
	if err != nil {
		a.log.Error("saved view of the cluster not read", "err", err)
	}
	if was {
		config.Known = &known
	}
	if a.cluster, err = nodeview.New(config); err != nil {
		return err
	}
	a.events, a.podReport = events.NewWriter(a.client, config.Node, a.cluster, config.Log), newPodReport()
	a.observers = append(a.observers, a.reportFailure, a.reportUnknown, a.podReport.observe, a.countChange)
	a.assembleNetworkStatus()
	if a.config.Kubernetes.ReportPolicies {
		a.health.Advise(health.Policies)
		a.policies = &policies{
			count: a.client.CountPolicies, health: a.health, log: a.log,
			attachments: func() []pod.Attachment { return a.pods.Attachments() },
		}
	}
	defer a.health.Set(health.Started, false, health.FirstResync)
	return a.serveWhile(ctx, a.learnNode)
}

// tunnelType returns the type of the tunnels to other nodes.
func (a *Agent) tunnelType() string {
	if a.cluster == nil {
		return networks.TunnelNone
	}
	return a.config.Kubernetes.Tunnel
}

// runCluster runs the parts of the agent that use the API server until ctx ends. Addresses are announced when all pods are restored.
func (a *Agent) runCluster(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return a.cluster.Run(ctx) })
	group.Go(func() error { return a.followCluster(ctx) })
	group.Go(func() error { return a.followUplink(ctx) })
	group.Go(func() error { return a.announcing(ctx) })
	group.Go(func() error { return a.awaitAnnouncement(ctx) })
	group.Go(func() error { return a.events.Run(ctx) })
	group.Go(func() error { return a.keeper.Run(ctx) })
	group.Go(func() error { return a.isolating(ctx) })
	group.Go(func() error {
		if err := a.health.Await(ctx, health.Started); err != nil {
			return err
		}
		group.Go(func() error { return a.reportPods(ctx) })
		if a.policies != nil {
			group.Go(func() error { return a.policies.run(ctx) })
		}
		if a.annotator != nil {
			group.Go(func() error { return a.annotator.Run(ctx) })
		}
		return a.publisher.Run(ctx)
	})
	return group.Wait()
}

// annotations returns the source of pods' annotations if the runtime does not pass them; nil: there is none.
func (a *Agent) annotations() func(context.Context, pod.ID) (map[string]string, string, error) {
	if a.cluster == nil {
		return nil
	}
	return a.cluster.Annotations
}

// paused reports whether and why ADDs are refused: the administrator paused them, or the state file cannot be written. DELs are served.
func (a *Agent) paused() (reason string, paused bool) {
	if a.cluster != nil {
		reason = a.cluster.View().Paused
	}
	if reason == "" && a.monitor.Try() != nil {
		reason = a.health.Failure(health.State)
	}
	return reason, reason != ""
}

// selected returns the function that resolves the networks that pods select; nil: Multus does, or there is no cluster.
func (a *Agent) selected() func(context.Context, *pod.AddPod) ([]pod.InterfaceRequest, error) {
	if a.cluster == nil || a.config.Kubernetes.Multus {
		return nil
	}
	return a.lookUp
}

// lookUp resolves the NetworkAttachmentDefinitions that a pod selects to interface requests.
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

// refusedSelection adds the pod to an error and keeps its code.
func refusedSelection(ev *pod.AddPod, code uint, err error) error {
	if own, ok := errors.AsType[*pod.Error](err); ok {
		code = own.Code
	}
	return pod.Errorf(code, "%s: %w", ev, err)
}

// assembleNetworkStatus prepares the network-status annotation of pods, unless Multus writes it or it is disabled.
func (a *Agent) assembleNetworkStatus() {
	if a.config.Kubernetes.Multus || !a.config.Kubernetes.NetworkStatus {
		return
	}
	a.annotator = a.cluster.NewAnnotator(networkstatus.Annotation, a.networkStatus)
	a.observers = append(a.observers, func(o podmanager.Outcome) {
		switch o.Happening {
		case podmanager.Added:
			a.annotator.Tell(o.Pod)
		case podmanager.Removed:
			if text, ours := networkstatus.Of([]pod.Attachment{*o.Attachment}); ours {
				a.annotator.Withdraw(o.Pod, text)
			}
		}
	})
}

// networkStatus returns the annotation of a pod; false: the pod has no attachment of Weft.
func (a *Agent) networkStatus(id pod.ID) (text string, ours bool) {
	return networkstatus.Of(a.pods.OfPod(id))
}
