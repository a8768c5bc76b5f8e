package blocks

import (
	"fmt"
	"net/netip"
	"slices"

	v1 "github.com/weftnet/weft/k8s/api/v1"
)

// Lease is an address of an IPPool or a custom network that a node reports as allocated.
type Lease struct {
	Pool    string
	Network string
	Address netip.Addr
	Holder  string
}

// CheckLeases returns the leases of a node that are neither in its blocks nor lent to it: another node could allocate them too. Leases must be read
// before the blocks. Addresses outside of the pools need no block.
func CheckLeases(pools []Pool, list []v1.IPBlock, node string, leases []Lease) []Violation {
	var found []Violation
	for _, l := range leases {
		inBlocks := slices.ContainsFunc(pools, func(p Pool) bool {
			return p.Name == l.Pool && p.Network == l.Network && p.Prefix.Contains(l.Address)
		})
		has := func(b v1.IPBlock) bool { return string(b.Spec.Network) == l.Network && gives(&b, node, l.Address) }
		if inBlocks && !slices.ContainsFunc(list, has) {
			found = append(found, Violation{
				Rule: RuleLease, Object: "node " + node, Text: fmt.Sprintf("address %s of %s is of no block of the node", l.Address, l.Holder),
			})
		}
	}
	return found
}

// gives reports whether a block allows a node to allocate an address.
func gives(b *v1.IPBlock, node string, address netip.Addr) bool {
	if !b.Spec.CIDR.Prefix().Contains(address) {
		return false
	}
	return string(b.Spec.Node) == node || slices.ContainsFunc(b.Spec.Borrowed, func(l v1.Loan) bool {
		return string(l.Node) == node && string(l.Address) == address.String()
	})
}
