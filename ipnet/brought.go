package ipnet

import (
	"net/netip"
	"slices"

	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/pod"
)

// bring takes the addresses of an interface from the pod, on a network of type L2 without cidrs: each has a prefix length. An
// address that another interface of the network on this node has is refused; other nodes' are not known.
func (n *Network) bring(ev *pod.AddPod, w *wish, ips []netip.Prefix) error {
	if w.custom == nil || w.custom.addresses != nil || len(ips) == 0 {
		return nil
	}
	for _, p := range ips {
		a := p.Addr()
		switch {
		case p.IsSingleIP():
			return pod.Errorf(pod.CodeInvalidAnnotation, "%s: interface %s: address %s needs a prefix length, as in \"%s/%d\": network %s has no cidrs",
				ev, w.name, a, a, map[bool]int{true: 24, false: 64}[a.Is4()], w.network)
		case !canBePods(a) || a.Is4() && p.Bits() < 31 && (a == p.Masked().Addr() || a == lastOf(p)):
			return pod.Errorf(pod.CodeInvalidAnnotation, "%s: interface %s: %s cannot be a pod's address", ev, w.name, p)
		}
		if c := n.holderOn(w.network, a); c != nil && !older(ev, c) {
			return n.refusal(ev, *w, ipam.ErrInUse{Address: a, Holder: holderOf(c.Key, nameOn(c, w.network, a))})
		}
	}
	w.wanted, w.brought = nil, ips
	return nil
}

// nameOn is the interface of a connection that has an address of a network.
func nameOn(c *connection, network string, a netip.Addr) string {
	at := slices.IndexFunc(c.Interfaces, func(i pod.Interface) bool { return i.Network == network && addressIn(i, a) >= 0 })
	return c.Interfaces[at].Name
}

// canBePods reports whether an address can be that of one machine on a network.
func canBePods(a netip.Addr) bool {
	return a.IsValid() && !a.Is4In6() && !a.IsMulticast() && !a.IsLoopback() && !a.IsUnspecified() && !a.IsLinkLocalUnicast()
}

// lastOf is the highest address of a prefix of IPv4: its broadcast address.
func lastOf(p netip.Prefix) netip.Addr {
	last := p.Masked().Addr().As4()
	for i := range last {
		if free := 8*(i+1) - p.Bits(); free > 0 {
			last[i] |= byte(1<<min(free, 8) - 1)
		}
	}
	return netip.AddrFrom4(last)
}

func addressesOf(prefixes []netip.Prefix) []netip.Addr {
	var addresses []netip.Addr
	for _, p := range prefixes {
		addresses = append(addresses, p.Addr())
	}
	return addresses
}

// inOrder lists addresses, IPv4 first.
func inOrder(prefixes []netip.Prefix) []netip.Prefix {
	return slices.SortedFunc(slices.Values(prefixes), func(x, y netip.Prefix) int { return x.Addr().Compare(y.Addr()) })
}

// distinctAddresses refuses two interfaces of a pod with one address of a network.
func distinctAddresses(ev *pod.AddPod, wishes []wish) error {
	seen := make(map[string]string)
	for _, w := range wishes {
		for _, p := range w.brought {
			key := w.network + " " + p.Addr().String()
			if other, taken := seen[key]; taken {
				return pod.Errorf(pod.CodeAddressInUse, "%s: interfaces %s and %s of network %s have the same address %s", ev, other, w.name, w.network, p.Addr())
			}
			seen[key] = w.name
		}
	}
	return nil
}
