package devicemanager

import (
	"context"
	"strings"

	"google.golang.org/grpc/status"

	"github.com/weftnet/weft/pod"
)

// Devices asks kubelet which containers of the pod have devices of ours, and returns what they were allocated, in
// kubelet's order of containers. A container that is no pod of Kubernetes has none. Errors name the pod and have a code
// of CNI's. A directory that is lost is made again: the ADD takes it for there.
func (m *Manager) Devices(ctx context.Context, id pod.ID) ([]pod.Grant, error) {
	if id.IsZero() {
		return nil, nil
	}
	found, err := m.devicesOf(ctx, id)
	if err != nil {
		return nil, pod.Errorf(pod.CodeTryAgain, "pod %s: ask kubelet at %s for its devices: %s: is kubelet running?",
			id, m.config.PodResources, status.Convert(err).Message())
	}
	var grants []pod.Grant
	for _, c := range found {
		holders := m.holders(c.devices)
		if len(holders) == 0 {
			return nil, pod.Errorf(pod.CodeDeviceMissing,
				"pod %s: container %s has %s of kubelet's, but this node lost what it allocated for that: delete the pod and create it again",
				id, c.container, strings.Join(c.devices, ", "))
		}
		if err := m.ensure(ctx, holders); err != nil {
			return nil, pod.Errorf(pod.CodeIO, "pod %s: container %s: %w", id, c.container, err)
		}
		for _, a := range holders {
			grants = append(grants, pod.Grant{Container: c.container, GID: pod.UnknownGroup, Allocation: a.clone()})
		}
	}
	return grants, nil
}
