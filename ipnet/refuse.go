package ipnet

import (
	"errors"
	"strings"
	"time"

	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// refused are the annotations whose wishes this version cannot fulfil. To leave them out silently would give the pod
// something else than was asked for.
var refused = []string{"contivpp.io/custom-if", "contivpp.io/ip-pools", "contivpp.io/ip-addresses"}

func refuseAnnotations(ev *pod.AddPod) error {
	for _, name := range refused {
		if value := strings.TrimSpace(ev.Annotations[name]); value != "" {
			return pod.Errorf(pod.CodeInvalidAnnotation,
				"%s: annotation %s: %q: this version of Weft wires the main interface only, from the default pools; remove the annotation",
				ev, name, value)
		}
	}
	return nil
}

// refusal tells why the pod gets no address, with a code and advice.
func (n *Network) refusal(ev *pod.AddPod, err error) error {
	var exhausted ipam.ErrExhausted
	var inUse ipam.ErrInUse
	var outside ipam.ErrOutside
	switch {
	case errors.As(err, &exhausted) && exhausted.Cooling > 0:
		wait := exhausted.NextFree.Sub(n.config.Now()).Round(100 * time.Millisecond)
		return pod.Errorf(pod.CodeTryAgain, "%s: no address of pool %s is free, %d cooling down, the next is free in %s; try again then",
			ev, exhausted.Pool, exhausted.Cooling, wait)
	case errors.As(err, &exhausted):
		return pod.Errorf(pod.CodePoolExhausted, "%s: %w; delete pods or give the node another pool", ev, err)
	case errors.As(err, &inUse):
		return pod.Errorf(pod.CodeAddressInUse, "%s: %w; ask for another one, or for none", ev, err)
	case errors.As(err, &outside):
		return pod.Errorf(pod.CodeUnknownNetwork, "%s: %w; ask for one of a pool of this node, or for none", ev, err)
	}
	return pod.Errorf(pod.CodeInvalidConfig, "%s: %w", ev, err)
}

// macFor is the MAC of the pod's end: the one asked for, else one that follows from the key.
func (n *Network) macFor(ev *pod.AddPod) (wire.MAC, error) {
	object := objectName(ev.Key, ev.Key.IfName)
	if ev.Requested.MAC == "" {
		return macOf(object, linuxEnd), nil
	}
	mac, err := wire.ParseMAC(ev.Requested.MAC)
	if err != nil {
		return wire.MAC{}, pod.Errorf(pod.CodeInvalidConfig, "%s: MAC asked for: %w", ev, err)
	}
	if !mac.IsUnicast() {
		return wire.MAC{}, pod.Errorf(pod.CodeInvalidConfig, "%s: MAC %s asked for is not one of a single interface: ask for a unicast MAC",
			ev, ev.Requested.MAC)
	}
	if mac == macOf(object, dataplaneEnd) {
		return wire.MAC{}, pod.Errorf(pod.CodeAddressInUse, "%s: MAC %s asked for is the gateway's; ask for another one, or for none", ev, mac)
	}
	for _, c := range n.wired {
		if c.Key != ev.Key && c.Interfaces[0].MAC == mac.String() {
			return wire.MAC{}, pod.Errorf(pod.CodeAddressInUse, "%s: MAC %s asked for is held by %s (%s); ask for another one, or for none",
				ev, mac, c.Name(), c.Key)
		}
	}
	return mac, nil
}
