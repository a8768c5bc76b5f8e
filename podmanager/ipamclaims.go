package podmanager

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"

	"github.com/weftnet/weft/pod"
)

// claims are the IPAMClaims that hold addresses of pods.
type claims struct {
	objects IPAMClaims // nil: there are none
	log     *slog.Logger
}

// claimReader returns the claim of a request.
type claimReader func(r pod.InterfaceRequest) (pod.IPAMClaim, error)

// reader returns the function that reads the claims of a pod.
func (c claims) reader(ctx context.Context, id pod.ID) claimReader {
	return func(r pod.InterfaceRequest) (pod.IPAMClaim, error) {
		if r.Options.PersistentIPs {
			return c.objects.ReplicaClaim(ctx, id, r.Options.IPAMClaim)
		}
		return c.objects.IPAMClaim(ctx, id.Namespace, r.Options.IPAMClaim)
	}
}

// read sets the claims of the main interface and of interfaces by a function.
func (c claims) read(request *pod.Request, interfaces []pod.InterfaceRequest, by claimReader) error {
	if err := request.NameClaim(); err != nil {
		return request.Failed(err)
	}
	if c.objects == nil || request.ID.IsZero() {
		return nil
	}
	main := pod.InterfaceRequest{
		Name: request.Key.IfName, Network: request.Requested.Network, Options: request.Requested.Options,
	}
	for _, r := range slices.Concat([]pod.InterfaceRequest{main}, interfaces) {
		name := r.Options.IPAMClaim
		if _, known := request.IPAMClaims[name]; known || name == "" {
			continue
		}
		claim, err := by(r)
		if err != nil {
			return request.Failed(err)
		}
		if request.IPAMClaims == nil {
			request.IPAMClaims = make(map[string]pod.IPAMClaim)
		}
		request.IPAMClaims[name] = claim
	}
	return nil
}

// planned is reader for a plan, and adds notes. The claim of an interface that does not exist yet may not
// exist either: it will hold what the interface gets.
func (c claims) planned(ctx context.Context, id pod.ID, notes *[]string) claimReader {
	return func(r pod.InterfaceRequest) (pod.IPAMClaim, error) {
		name := r.Options.IPAMClaim
		if !r.Options.PersistentIPs {
			return c.objects.IPAMClaim(ctx, id.Namespace, name)
		}
		claim, exists, err := c.objects.FindIPAMClaim(ctx, id.Namespace, name)
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
// written must be deleted: the next one with the claim would have other addresses. A pod that runs keeps the addresses
// of a claim that is gone. It has them written again, because the agent may have been killed before.
func (c claims) assign(ctx context.Context, a *pod.Attachment, isRunning bool) error {
	if c.objects == nil {
		return nil
	}
	for _, i := range a.Interfaces {
		if i.IPAMClaim == "" {
			continue
		}
		err := c.assignOne(ctx, a.Pod, i)
		switch coded, _ := errors.AsType[*pod.Error](err); {
		case err == nil:
		case !isRunning, coded == nil, coded.Code == pod.CodeTryAgain:
			return err
		default:
			c.log.Warn("pod keeps addresses that no IPAMClaim holds", "pod", a.Pod.String(), "interface", i.Name,
				"err", err)
		}
	}
	return nil
}

// assignOne writes the addresses of an interface, unless the claim holds some of them: it may hold those of one family
// only.
func (c claims) assignOne(ctx context.Context, id pod.ID, i pod.Interface) error {
	claim, err := c.objects.IPAMClaim(ctx, id.Namespace, i.IPAMClaim)
	if err != nil {
		return err
	}
	isOwn := func(held netip.Addr) bool {
		return slices.ContainsFunc(i.Addresses, func(p netip.Prefix) bool { return p.Addr() == held })
	}
	if slices.ContainsFunc(claim.Addresses, isOwn) {
		return nil
	}
	return c.objects.Assign(ctx, claim, id.Name, i.Addresses)
}
