package ipnet

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/pod"
)

// about says which pod an error is about, and keeps its code.
func about(ev *pod.AddPod, err error) error {
	if coded, ok := errors.AsType[*pod.Error](err); ok {
		return pod.Errorf(coded.Code, "%s: %w", ev, err)
	}
	return fmt.Errorf("%s: %w", ev, err)
}

// refusal tells why the pod gets no address, with a code and advice.
func (n *Network) refusal(ev *pod.AddPod, w wish, err error) error {
	what := ev.String()
	if w.name != ev.Key.IfName {
		what += ": interface " + w.name
	}
	var exhausted ipam.ErrExhausted
	var inUse ipam.ErrInUse
	var outside ipam.ErrOutside
	switch {
	case errors.As(err, &exhausted) && exhausted.Cooling > 0:
		wait := exhausted.NextFree.Sub(n.config.Now()).Round(100 * time.Millisecond)
		return pod.Errorf(pod.CodeTryAgain, "%s: no address of pool %s is free, %d cooling down, the next is free in %s; try again then",
			what, exhausted.Pool, exhausted.Cooling, wait)
	case errors.As(err, &exhausted) && exhausted.NoBlock:
		return pod.Errorf(pod.CodeTryAgain, "%s: %w, and none that it may have was given to it yet; try again", what, err)
	case errors.As(err, &exhausted) && w.custom != nil:
		return pod.Errorf(pod.CodePoolExhausted, "%s: %w, %d by this node; delete pods of network %s, or give it larger cidrs", what, err, n.heldOf(w, exhausted), w.network)
	case errors.As(err, &exhausted):
		return pod.Errorf(pod.CodePoolExhausted, "%s: %w, %d by this node; delete pods, or give the node another pool", what, err, n.heldOf(w, exhausted))
	case errors.As(err, &inUse) && n.isOfEarlierPod(ev, inUse.Holder):
		return pod.Errorf(pod.CodeTryAgain, "%s: %w, of the earlier pod of this name, which is not unwired yet; try again", what, err)
	case errors.As(err, &inUse):
		return pod.Errorf(pod.CodeAddressInUse, "%s: address %s is held by %s; ask for another one, or for none", what, inUse.Address, n.holderName(inUse.Holder))
	case errors.As(err, &outside):
		return pod.Errorf(pod.CodeUnknownNetwork, "%s: %w; %s", what, err, n.outsideAdvice(ev, w, outside))
	}
	return pod.Errorf(pod.CodeInvalidConfig, "%s: %w", what, err)
}

// heldOf counts the addresses of exhausted pools that this node gave to pods.
func (n *Network) heldOf(w wish, e ipam.ErrExhausted) (held uint64) {
	for _, s := range n.allocator(w.network).Stats() {
		if slices.Contains(e.Pools(), s.Name) {
			held += s.Used + s.Leased
		}
	}
	return held
}

// holderName is the pod of a holder, if it has one, with the attachment.
func (n *Network) holderName(holder string) string {
	for _, c := range n.wired {
		if slices.ContainsFunc(c.Interfaces, func(i pod.Interface) bool { return holderOf(c.Key, i.Name) == holder }) {
			return c.Name() + " on this node (" + holder + ")"
		}
	}
	return holder
}

// outsideAdvice says which addresses a pod can ask for. An address that other nodes give out is in the right range.
func (n *Network) outsideAdvice(ev *pod.AddPod, w wish, e ipam.ErrOutside) string {
	if e.Elsewhere {
		return "other nodes give it out; ask for another one, or for none"
	}
	if w.custom != nil {
		return fmt.Sprintf("ask for another one of %v, or for none", w.custom.Network.CIDRs)
	}
	var prefixes []string
	for _, p := range n.pools.Load().all {
		if !p.Disabled && p.Admits(ev.ID.Namespace) {
			prefixes = append(prefixes, fmt.Sprintf("%s (pool %s)", p.Prefix, p.Name))
		}
	}
	return fmt.Sprintf("ask for another one of %s, or for none", strings.Join(prefixes, ", "))
}
