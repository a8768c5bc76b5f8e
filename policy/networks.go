package policy

import "slices"

// applies reports whether a policy is about an interface of its subjects. The networks of the policy are sorted: there
// may be thousands, and each is compared with the networks of each peer.
func (p *policyState) applies(i *Interface) bool {
	if p.Kind != Multi {
		return i.Main
	}
	return !i.Main && (p.AllNetworks || slices.ContainsFunc(i.Networks, p.names))
}

// names reports whether a policy is about a network.
func (p *policyState) names(network string) bool {
	_, is := slices.BinarySearch(p.Networks, network)
	return is
}
