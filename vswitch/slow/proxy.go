package slow

import "net/netip"

// Range is the addresses from Low to High, both included.
type Range struct {
	Low, High netip.Addr
}

// Proxied is whom an interface answers for beside itself.
type Proxied struct {
	Ranges   []Range               // by ARP
	Hosts    map[netip.Addr]uint32 // by ND, with the interface that each is behind
	Everyone bool                  // by ND: whoever is asked for by an address that is not link-local
}

// answersFor4 says that the interface answers an ARP request for another's address. Nobody is answered about himself, nor
// about a neighbour on the same link, who answers by himself.
func (p *Path) answersFor4(index uint32, i Interface, sender, target netip.Addr) bool {
	if sender == target {
		return false
	}
	for _, r := range i.Proxied.Ranges {
		if r.Low.Compare(target) <= 0 && target.Compare(r.High) <= 0 {
			return !p.isNeighbour(index, target)
		}
	}
	return false
}

// answersFor6 says the same of a solicitation. As in VPP a link-local source gets no answer from an interface that answers
// for everyone.
func (p *Path) answersFor6(index uint32, i Interface, source, target netip.Addr) bool {
	if source == target || p.isNeighbour(index, target) {
		return false
	}
	if behind, ok := i.Proxied.Hosts[target]; ok {
		return behind != index
	}
	return i.Proxied.Everyone && !source.IsUnspecified() && !source.IsLinkLocalUnicast() && !target.IsLinkLocalUnicast()
}

func (p *Path) isNeighbour(index uint32, a netip.Addr) bool {
	_, _, known := p.router.Neighbour(index, a)
	return known
}
