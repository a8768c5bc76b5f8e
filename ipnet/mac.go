package ipnet

import (
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// macFor is the MAC of the pod's end: the one asked for, else one that follows from the object's name.
func (n *Network) macFor(ev *pod.AddPod, w wish, asked string) (wire.MAC, error) {
	if asked == "" {
		return macOf(w.object, linuxEnd), nil
	}
	code, what := pod.CodeInvalidConfig, ""
	if w.name != ev.Key.IfName {
		code, what = pod.CodeInvalidAnnotation, "interface "+w.name+": "
	}
	mac, err := wire.ParseMAC(asked)
	if err != nil {
		return wire.MAC{}, pod.Errorf(code, "%s: %sMAC asked for: %w", ev, what, err)
	}
	if !mac.IsUnicast() {
		return wire.MAC{}, pod.Errorf(code, "%s: %sMAC %s asked for is not one of a single interface: ask for a unicast MAC", ev, what, asked)
	}
	if n.isGateways(mac) || mac == macOf(w.object, dataplaneEnd) || mac == macOf(w.object, hostEnd) {
		return wire.MAC{}, pod.Errorf(pod.CodeAddressInUse, "%s: %sMAC %s asked for is the gateway's or the node's; ask for another one, or for none",
			ev, what, mac)
	}
	if c := n.holderOfMAC(mac.String()); c != nil && c.Key != ev.Key {
		return wire.MAC{}, pod.Errorf(pod.CodeAddressInUse, "%s: %sMAC %s asked for is held by %s (%s); ask for another one, or for none",
			ev, what, mac, c.Name(), c.Key)
	}
	return mac, nil
}

// distinct refuses a pod two of whose interfaces are to have one MAC.
func distinct(ev *pod.AddPod, wishes []wish) error {
	seen := make(map[wire.MAC]string)
	for _, w := range wishes {
		if other, taken := seen[w.mac]; taken {
			return pod.Errorf(pod.CodeAddressInUse, "%s: interface %s: MAC %s is that of interface %s; ask for another one, or for none",
				ev, w.name, w.mac, other)
		}
		seen[w.mac] = w.name
		for _, o := range wishes {
			if w.mac == macOf(o.object, dataplaneEnd) || w.mac == macOf(o.object, hostEnd) {
				return pod.Errorf(pod.CodeAddressInUse, "%s: interface %s: MAC %s is that of the gateway of interface %s; ask for another one, or for none",
					ev, w.name, w.mac, o.name)
			}
		}
	}
	return nil
}

func (n *Network) holderOfMAC(mac string) *connection {
	for _, c := range n.wired {
		for _, i := range c.Interfaces {
			if i.MAC == mac {
				return c
			}
		}
	}
	return nil
}

// isGateways reports whether a MAC is one that Weft gave to an interface of the dataplane or the node.
func (n *Network) isGateways(mac wire.MAC) bool {
	objects := []string{gatewayObject, hostObject, tunnelObject}
	for _, c := range n.customNetworks() {
		objects = append(objects, c.loopback)
	}
	for _, c := range n.wired {
		for _, i := range c.Interfaces {
			objects = append(objects, i.Object)
		}
	}
	for _, object := range objects {
		if mac == macOf(object, dataplaneEnd) || mac == macOf(object, hostEnd) {
			return true
		}
	}
	return mac == macOf(hostObject, linuxEnd) || mac == macOf(tunnelObject, linuxEnd)
}
