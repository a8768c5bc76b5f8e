package agent

import (
	"context"
	"errors"
	"slices"

	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/k8s/blocks"
	"github.com/weftnet/weft/pod"
)

// refill gets the node the addresses that an ADD lacked: a block where none is free, or the static address that is in no block
// of this node. It returns nil if the ADD is to be tried again, else the error of the ADD.
func (a *Agent) refill(ctx context.Context, ev *pod.AddPod, refused error) error {
	var exhausted ipam.ErrExhausted
	var elsewhere ipam.ErrOutside
	switch {
	case a.keeper == nil:
	case errors.As(refused, &exhausted):
		return a.refillPool(ctx, ev, exhausted, refused)
	case errors.As(refused, &elsewhere) && elsewhere.Elsewhere:
		return a.claimStatic(ctx, ev, elsewhere, refused)
	}
	return refused
}

// claimStatic claims an address for a pod that asks for that very one.
func (a *Agent) claimStatic(ctx context.Context, ev *pod.AddPod, e ipam.ErrOutside, refused error) error {
	pools := a.claimedFrom()
	at := slices.IndexFunc(pools, func(p blocks.Pool) bool {
		return !p.Closed && nameOfPool(p) == e.Pool && p.Prefix.Contains(e.Address)
	})
	if at < 0 {
		return refused
	}
	err := a.keeper.Claim(ctx, blocks.Static{Pool: pools[at], Address: e.Address, Namespace: ev.ID.Namespace, Pod: ev.ID.Name})
	held, isHeld := errors.AsType[blocks.ErrHeld](err)
	switch {
	case err == nil:
		return nil
	case isHeld && held.Pod != "" && held.Pod == ev.ID.Name && held.Namespace == ev.ID.Namespace:
		return pod.Errorf(pod.CodeTryAgain, "%s: %w, which has not released it yet; try again", ev, err)
	case isHeld:
		return pod.Errorf(pod.CodeAddressInUse, "%s: %w; ask for another address of %s, or for none", ev, err, pools[at])
	}
	return pod.Errorf(pod.CodeTryAgain, "%s: %w; try again", ev, err)
}
