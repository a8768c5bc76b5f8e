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

// queryTimeout bounds one query of kubelet, which usually takes milliseconds.
const queryTimeout = 5 * time.Second

// containerDevices are the memif devices that kubelet gave to a container.
type containerDevices struct {
	container string
	devices   []string
}

// podResources asks kubelet which container has which devices.
type podResources struct {
	socket string // of kubelet's PodResources service
}

// query connects to kubelet's PodResources service and calls f.
func (k *podResources) query(
	ctx context.Context, f func(context.Context, podresources.PodResourcesListerClient) error,
) error {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	conn, err := dial(k.socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	return f(ctx, podresources.NewPodResourcesListerClient(conn))
}

// devicesOf returns the devices of the pod's containers, in kubelet's order of containers.
func (k *podResources) devicesOf(ctx context.Context, id pod.ID) (found []containerDevices, err error) {
	err = k.query(ctx, func(ctx context.Context, kubelet podresources.PodResourcesListerClient) error {
		resp, err := kubelet.Get(ctx, &podresources.GetPodResourcesRequest{
			PodName:      id.Name,
			PodNamespace: id.Namespace,
		})
		if err == nil {
			found = devicesIn(resp.GetPodResources())
			return nil
		}
		if isAway(err) {
			return err
		}
		// An older kubelet has no Get, and a disabled Get fails without a specific code.
		found, err = findInList(ctx, kubelet, id)
		return err
	})
	return found, err
}

// lists reports whether kubelet has the pod.
func (k *podResources) lists(ctx context.Context, id pod.ID) (listed bool, err error) {
	err = k.query(ctx, func(ctx context.Context, kubelet podresources.PodResourcesListerClient) error {
		pods, err := list(ctx, kubelet)
		listed = slices.ContainsFunc(pods, func(p *podresources.PodResources) bool {
			return p.GetNamespace() == id.Namespace && p.GetName() == id.Name
		})
		return err
	})
	if err != nil {
		return false, fmt.Errorf("kubelet at %s: %w", k.socket, err)
	}
	return listed, nil
}

// listed returns the devices that pods have and the number of pods.
func (k *podResources) listed(ctx context.Context) (devices map[string]bool, pods int, err error) {
	devices = make(map[string]bool)
	err = k.query(ctx, func(ctx context.Context, kubelet podresources.PodResourcesListerClient) error {
		all, err := list(ctx, kubelet)
		if err != nil {
			return fmt.Errorf("collect unused allocations: %w", err)
		}
		pods = len(all)
		for _, p := range all {
			for _, o := range devicesIn(p) {
				for _, device := range o.devices {
					devices[device] = true
				}
			}
		}
		return nil
	})
	return devices, pods, err
}

func findInList(
	ctx context.Context, kubelet podresources.PodResourcesListerClient, id pod.ID,
) ([]containerDevices, error) {
	pods, err := list(ctx, kubelet)
	if err != nil {
		return nil, err
	}
	for _, p := range pods {
		if p.GetNamespace() == id.Namespace && p.GetName() == id.Name {
			return devicesIn(p), nil
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

// isAway reports whether kubelet did not answer, so that another request is useless.
func isAway(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return true
	default:
		return false
	}
}

// devicesIn returns the containers of a pod that have memif devices.
func devicesIn(p *podresources.PodResources) []containerDevices {
	var found []containerDevices
	for _, c := range p.GetContainers() {
		o := containerDevices{container: c.GetName()}
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
