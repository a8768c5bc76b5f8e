package policy

import "slices"

// maxNetworks is the number of names of networks that a policy may have, see [Policy.Networks].
const maxNetworks = 2048

// setNetworks prepares the networks of a policy for lookups. A policy with too many is about all of them, and allows nothing.
func (p *policyState) setNetworks() {
	if len(p.Networks) > maxNetworks {
		p.allNetworks = len(p.Networks)
		p.Networks = nil
		return
	}
	p.Networks = slices.Sorted(slices.Values(p.Networks))
}

// applies reports whether a policy is about an interface of its subjects.
func (p *policyState) applies(i *Interface) bool {
	if p.Kind != Multi {
		return i.Main
	}
	return !i.Main && (p.allNetworks > 0 || slices.ContainsFunc(i.Networks, p.names))
}

// names reports whether a policy is about a network.
func (p *policyState) names(network string) bool {
	_, is := slices.BinarySearch(p.Networks, network)
	return is
}
