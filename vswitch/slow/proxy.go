package slow

import "net/netip"

// Range is an inclusive range of addresses.
type Range struct {
	Low, High netip.Addr
}

// Proxied lists the foreign addresses that an interface answers for.
type Proxied struct {
	Ranges []Range               // by ARP
	Hosts  map[netip.Addr]uint32 // by ND, with the interface of each host
	All    bool                  // by ND: all addresses, if the source is not link-local
}

// answersFor4 reports whether the interface answers an ARP request for a proxied address. It never answers for the
// sender's own address nor for a neighbour on the same link.
func (rp *responder) answersFor4(index uint32, i Interface, sender, target netip.Addr) bool {
	if sender == target {
		return false
	}
	for _, r := range i.Proxied.Ranges {
		if r.Low.Compare(target) <= 0 && target.Compare(r.High) <= 0 {
			return !rp.isNeighbour(index, target)
		}
	}
	return false
}

// answersFor6 is answersFor4 for a neighbour solicitation. As in VPP, All does not apply to link-local sources.
func (rp *responder) answersFor6(index uint32, i Interface, source, target netip.Addr) bool {
	if source == target || rp.isNeighbour(index, target) {
		return false
	}
	if behind, ok := i.Proxied.Hosts[target]; ok {
		return behind != index
	}
	return i.Proxied.All && !source.IsUnspecified() && !source.IsLinkLocalUnicast() && !target.IsLinkLocalUnicast()
}

func (rp *responder) isNeighbour(index uint32, a netip.Addr) bool {
	_, _, known := rp.router.Neighbour(index, a)
	return known
}
