package podmanager

import (
	"context"
	"net/netip"
	"slices"

	"github.com/weftnet/weft/pod"
)

// ipamClaims reads the claims that the interfaces of a new pod refer to. What is wrong with the requests the event
// reports.
func (m *Manager) ipamClaims(ctx context.Context, ev *pod.AddPod) error {
	if m.config.Claims == nil || ev.ID.IsZero() {
		return nil
	}
	names := []string{ev.Requested.Options.IPAMClaim}
	requests, _ := ev.Extra()
	for _, r := range requests {
		names = append(names, r.Options.IPAMClaim)
	}
	for _, name := range names {
		if _, known := ev.IPAMClaims[name]; known || name == "" {
			continue
		}
		claim, err := m.config.Claims.IPAMClaim(ctx, ev.ID.Namespace, name)
		if err != nil {
			return ev.Failed(err)
		}
		if ev.IPAMClaims == nil {
			ev.IPAMClaims = make(map[string]pod.IPAMClaim)
		}
		ev.IPAMClaims[name] = claim
	}
	return nil
}

// assign writes the addresses of a connected pod to the claims that hold none yet. It also does so for a repeated ADD:
// the agent may have been killed before. A pod whose claim cannot be written is deleted again: the next one with the
// claim would have other addresses.
func (m *Manager) assign(ctx context.Context, a *pod.Attachment) error {
	for _, i := range a.Interfaces {
		if i.IPAMClaim == "" || m.config.Claims == nil {
			continue
		}
		if err := m.assignOne(ctx, a.Pod, i); err != nil {
			_, _ = m.delete(ctx, &pod.DeletePod{Key: a.Key, ID: a.Pod, Reason: "IPAMClaim not written"}) // it logs
			return err
		}
	}
	return nil
}

func (m *Manager) assignOne(ctx context.Context, id pod.ID, i pod.Interface) error {
	claim, err := m.config.Claims.IPAMClaim(ctx, id.Namespace, i.IPAMClaim)
	if err != nil {
		return err
	}
	isSame := func(a netip.Addr, p netip.Prefix) bool { return a == p.Addr() }
	if slices.EqualFunc(claim.Addresses, i.Addresses, isSame) {
		return nil
	}
	return m.config.Claims.Assign(ctx, claim, id.Name, i.Addresses)
}
