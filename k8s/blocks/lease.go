package blocks

import (
	"fmt"
	"net/netip"
	"slices"

	v1 "github.com/weftnet/weft/k8s/api/v1"
)

// Lease is an address of an IPPool, or of a custom network, that a node gave out, as the node itself says.
type Lease struct {
	Pool    string
	Network string
	Address netip.Addr
	Holder  string
}

// CheckLeases says which leases of a node are of no block that the node has, and not lent to it: another node could give
// them out too. They must have been read before the blocks. Addresses that are of none of the pools are not of blocks.
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

// gives reports whether a block lets a node give out an address.
func gives(b *v1.IPBlock, node string, address netip.Addr) bool {
	prefix, err := netip.ParsePrefix(string(b.Spec.CIDR))
	if err != nil || !prefix.Contains(address) {
		return false
	}
	return string(b.Spec.Node) == node || slices.ContainsFunc(b.Spec.Borrowed, func(l v1.Loan) bool {
		return string(l.Node) == node && string(l.Address) == address.String()
	})
}
