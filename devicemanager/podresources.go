package devicemanager

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/weftnet/weft/pod"
)

// askTimeout is for one question to kubelet, which takes milliseconds.
const askTimeout = 5 * time.Second

// owned are devices of ours that kubelet gave to a container.
type owned struct {
	container string
	devices   []string
}

// ask lets f put questions to kubelet.
func (m *Manager) ask(ctx context.Context, f func(context.Context, podresources.PodResourcesListerClient) error) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	conn, err := dial(m.config.PodResources)
	if err != nil {
		return err
	}
	defer conn.Close()
	return f(ctx, podresources.NewPodResourcesListerClient(conn))
}

// devicesOf asks which of our devices the containers of a pod have, in kubelet's order.
func (m *Manager) devicesOf(ctx context.Context, id pod.ID) (found []owned, err error) {
	err = m.ask(ctx, func(ctx context.Context, kubelet podresources.PodResourcesListerClient) error {
		resp, err := kubelet.Get(ctx, &podresources.GetPodResourcesRequest{PodName: id.Name, PodNamespace: id.Namespace})
		if err == nil {
			found = ownedBy(resp.GetPodResources())
			return nil
		}
		if isAway(err) {
			return err
		}
		// An older kubelet has no Get, one where it is switched off answers with an error of no code of its own.
		found, err = findInList(ctx, kubelet, id)
		return err
	})
	return found, err
}

// Lists asks kubelet whether it has a pod.
func (m *Manager) Lists(ctx context.Context, id pod.ID) (listed bool, err error) {
	err = m.ask(ctx, func(ctx context.Context, kubelet podresources.PodResourcesListerClient) error {
		pods, err := list(ctx, kubelet)
		listed = slices.ContainsFunc(pods, func(p *podresources.PodResources) bool {
			return p.GetNamespace() == id.Namespace && p.GetName() == id.Name
		})
		return err
	})
	if err != nil {
		return false, fmt.Errorf("kubelet at %s: %w", m.config.PodResources, err)
	}
	return listed, nil
}

func findInList(ctx context.Context, kubelet podresources.PodResourcesListerClient, id pod.ID) ([]owned, error) {
	pods, err := list(ctx, kubelet)
	if err != nil {
		return nil, err
	}
	for _, p := range pods {
		if p.GetNamespace() == id.Namespace && p.GetName() == id.Name {
			return ownedBy(p), nil
		}
	}
	return nil, nil
}

func list(ctx context.Context, kubelet podresources.PodResourcesListerClient) ([]*podresources.PodResources, error) {
	resp, err := kubelet.List(ctx, &podresources.ListPodResourcesRequest{})
	if err != nil {
		return nil, fmt.Errorf("list pods' resources: %w", err)
	}
	return resp.GetPodResources(), nil
}

// isAway reports whether no answer came, so that another question is no use.
func isAway(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return true
	default:
		return false
	}
}

// ownedBy leaves out the devices of other vendors and the containers without any of ours.
func ownedBy(p *podresources.PodResources) []owned {
	var found []owned
	for _, c := range p.GetContainers() {
		o := owned{container: c.GetName()}
		for _, d := range c.GetDevices() {
			if d.GetResourceName() == pod.Resource {
				o.devices = append(o.devices, d.GetDeviceIds()...)
			}
		}
		if len(o.devices) > 0 {
			found = append(found, o)
		}
	}
	return found
}
