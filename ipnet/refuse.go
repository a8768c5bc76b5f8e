package ipnet

import (
	"errors"
	"fmt"
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
		return pod.Errorf(pod.CodePoolExhausted, "%s: %w; delete pods of network %s", what, err, w.network)
	case errors.As(err, &exhausted):
		return pod.Errorf(pod.CodePoolExhausted, "%s: %w; delete pods or give the node another pool", what, err)
	case errors.As(err, &inUse) && n.isOfEarlierPod(ev, inUse.Holder):
		return pod.Errorf(pod.CodeTryAgain, "%s: %w, of the earlier pod of this name, which is not unwired yet; try again", what, err)
	case errors.As(err, &inUse):
		return pod.Errorf(pod.CodeAddressInUse, "%s: %w; ask for another one, or for none", what, err)
	case errors.As(err, &outside) && w.custom != nil:
		return pod.Errorf(pod.CodeUnknownNetwork, "%s: %w; ask for one of %v, or for none", what, err, w.custom.Network.CIDRs)
	case errors.As(err, &outside):
		return pod.Errorf(pod.CodeUnknownNetwork, "%s: %w; ask for one of a pool of this node, or for none", what, err)
	}
	return pod.Errorf(pod.CodeInvalidConfig, "%s: %w", what, err)
}
