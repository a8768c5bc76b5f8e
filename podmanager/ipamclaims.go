package podmanager

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/weftnet/weft/pod"
)

// ipamClaims reads the claims that the interfaces of a new pod refer to. What is wrong with the requests the event
// reports.
func (m *Manager) ipamClaims(ctx context.Context, ev *pod.AddPod) error {
	requests, _ := ev.Extra()
	return m.readClaims(ev, requests, m.claimReader(ctx, ev.ID))
}

// claimReader returns the claim of a request.
type claimReader func(r pod.InterfaceRequest) (pod.IPAMClaim, error)

// claimReader returns the function that reads the claims of a pod.
func (m *Manager) claimReader(ctx context.Context, id pod.ID) claimReader {
	return func(r pod.InterfaceRequest) (pod.IPAMClaim, error) {
		if r.Options.PersistentIPs {
			return m.config.Claims.ReplicaClaim(ctx, id, r.Options.IPAMClaim)
		}
		return m.config.Claims.IPAMClaim(ctx, id.Namespace, r.Options.IPAMClaim)
	}
}

// readClaims sets the claims of the main interface and of requests by a function.
func (m *Manager) readClaims(ev *pod.AddPod, requests []pod.InterfaceRequest, read claimReader) error {
	if err := ev.NameClaim(); err != nil {
		return ev.Failed(err)
	}
	if m.config.Claims == nil || ev.ID.IsZero() {
		return nil
	}
	main := pod.InterfaceRequest{Name: ev.Key.IfName, Network: ev.Requested.Network, Options: ev.Requested.Options}
	for _, r := range slices.Concat([]pod.InterfaceRequest{main}, requests) {
		name := r.Options.IPAMClaim
		if _, known := ev.IPAMClaims[name]; known || name == "" {
			continue
		}
		claim, err := read(r)
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

// plannedClaims is claimReader for a plan, and adds notes. The claim of an interface that does not exist yet may not
// exist either: it will hold what the interface gets.
func (m *Manager) plannedClaims(ctx context.Context, id pod.ID, notes *[]string) claimReader {
	return func(r pod.InterfaceRequest) (pod.IPAMClaim, error) {
		name := r.Options.IPAMClaim
		if !r.Options.PersistentIPs {
			return m.config.Claims.IPAMClaim(ctx, id.Namespace, name)
		}
		claim, exists, err := m.config.Claims.FindIPAMClaim(ctx, id.Namespace, name)
		if exists || err != nil {
			return claim, err
		}
		claim = pod.IPAMClaim{Namespace: id.Namespace, Name: name, Network: cmp.Or(r.Network, pod.DefaultNetwork)}
		*notes = append(*notes, claim.String()+
			" does not exist yet: weft-controller makes it for the pod, if a StatefulSet controls the pod")
		return claim, nil
	}
}

// assign writes the addresses of a connected pod to the claims that hold none yet. A new pod whose claim cannot be
// written is deleted again: the next one with the claim would have other addresses. A repeated ADD never deletes the
// pod, which may run. It writes, too, because the agent may have been killed before, but the pod also keeps the
// addresses of a claim that is gone.
func (m *Manager) assign(ctx context.Context, ev *pod.AddPod) error {
	if m.config.Claims == nil {
		return nil
	}
	a := ev.Attachment
	for _, i := range a.Interfaces {
		if i.IPAMClaim == "" {
			continue
		}
		err := m.assignOne(ctx, a.Pod, i)
		switch coded, _ := errors.AsType[*pod.Error](err); {
		case err == nil:
		case !ev.Repeated:
			gone := &pod.DeletePod{Key: a.Key, ID: a.Pod, Reason: "IPAMClaim not written"}
			_, _ = m.delete(context.WithoutCancel(ctx), gone) // it logs
			return err
		case coded == nil || coded.Code == pod.CodeTryAgain:
			return err
		default:
			m.config.Log.Warn("pod keeps addresses that no IPAMClaim holds", "pod", a.Pod.String(), "interface", i.Name,
				"err", err)
		}
	}
	return nil
}

// assignOne writes the addresses of an interface, unless the claim holds some of them: it may hold those of one family
// only.
func (m *Manager) assignOne(ctx context.Context, id pod.ID, i pod.Interface) error {
	claim, err := m.config.Claims.IPAMClaim(ctx, id.Namespace, i.IPAMClaim)
	if err != nil {
		return err
	}
	isOwn := func(held netip.Addr) bool {
		return slices.ContainsFunc(i.Addresses, func(p netip.Prefix) bool { return p.Addr() == held })
	}
	if slices.ContainsFunc(claim.Addresses, isOwn) {
		return nil
	}
	return m.config.Claims.Assign(ctx, claim, id.Name, i.Addresses)
}
