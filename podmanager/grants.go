package podmanager

import (
	"context"
	"errors"
	"slices"

	"github.com/weftnet/weft/pod"
)

// grants asks which devices the pod has, if a memif is wanted. Annotations that cannot be read are refused by
// who makes the interfaces.
func (m *Manager) grants(ctx context.Context, ev *pod.AddPod) ([]pod.Grant, error) {
	if m.config.Grants == nil || ev.ID.IsZero() || ev.Mode == pod.ModeIPAM {
		return nil, nil
	}
	extra, err := ev.Extra()
	isMemif := func(r pod.InterfaceRequest) bool { return r.Type == pod.TypeMemif }
	if err != nil || ev.Requested.Type != pod.TypeMemif && !slices.ContainsFunc(extra, isMemif) {
		return nil, nil //nolint:nilerr // said above
	}
	grants, err := m.config.Grants(ctx, ev.ID)
	if err == nil {
		return grants, nil
	}
	if _, ok := errors.AsType[*pod.Error](err); ok {
		return nil, err
	}
	return nil, pod.Errorf(pod.CodeTryAgain, "%s: ask kubelet for its devices: %w", ev, err)
}
