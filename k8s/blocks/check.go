package blocks

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	v1 "github.com/weftnet/weft/k8s/api/v1"
)

// Rule names the rule of a violation.
type Rule string

// The rules, most severe first: two pods may have one address, then addresses are lost.
const (
	RuleOverlap Rule = "blocks-overlap"      // an address is in two blocks of a network
	RuleTwice   Rule = "address-twice"       // two blocks list an address
	RuleLease   Rule = "address-of-no-block" // a node allocated an address without a block
	RuleOutside Rule = "address-outside"     // a block lists an address outside of it
	RuleLoan    Rule = "loan"                // an address was not offered, or its own node borrows it
	// the name of a block does not follow from its CIDR: it could be claimed twice
	RuleNamed Rule = "block-named"
	RulePools Rule = "pools-overlap"    // an address is in two pools
	RulePool  Rule = "block-of-no-pool" // a block is not a block of its pool
	RuleNode  Rule = "block-of-no-node" // a block's node is deleted: a leak
	// a block has an owner: Kubernetes deletes it with the owner, while pods use it
	RuleOwner      Rule = "block-owned"
	RuleTaken      Rule = "address-taken"      // pods of a node use addresses that another node owns
	RuleBorrower   Rule = "loan-of-no-node"    // a borrower is deleted: a leak
	RuleAccounting Rule = "count-of-addresses" // the counts of a block differ from its list
)

// Violation is a violated rule.
type Violation struct {
	Rule   Rule   `json:"rule"`
	Object string `json:"object"` // kind and name
	Text   string `json:"text"`
}

// String returns one line.
func (v Violation) String() string { return fmt.Sprintf("%s: %s: %s", v.Rule, v.Object, v.Text) }

// Nodes holds the UIDs of the existing nodes, by name.
type Nodes map[string]string

// Check returns the violations in the cluster's addresses; nil: all are valid. It does no I/O. A claim or a release in
// progress is no violation if the lists were read in the order blocks, nodes.
func Check(pools []PoolCIDR, blocks []v1.IPBlock, nodes Nodes) []Violation {
	c := checker{pools: pools, nodes: nodes, holders: make(map[addressKey]string)}
	c.overlappingPools()
	for i := range blocks {
		c.block(&blocks[i])
	}
	c.overlappingBlocks()
	return c.found
}

type placed struct {
	name, network string
	prefix        netip.Prefix
}

type checker struct {
	pools   []PoolCIDR
	nodes   Nodes
	placed  []placed
	holders map[addressKey]string // name of the block that lists it
	found   []Violation
}

func (c *checker) add(rule Rule, object, format string, args ...any) {
	c.found = append(c.found, Violation{Rule: rule, Object: object, Text: fmt.Sprintf(format, args...)})
}

func (c *checker) overlappingPools() {
	for i, p := range c.pools {
		if err := p.Validate(); err != nil {
			c.add(RulePools, p.String(), "%v", err)
		}
		for _, other := range c.pools[:i] {
			if p.Network == other.Network && p.Prefix.Overlaps(other.Prefix) {
				c.add(RulePools, p.String(), "%s overlaps %s of %s", p.Prefix, other.Prefix, other)
			}
		}
	}
}

func (c *checker) block(b *v1.IPBlock) {
	object := "block " + b.Name
	prefix, err := Parse(b)
	if err != nil {
		c.add(RuleNamed, object, "%v", err)
		if prefix, err = netip.ParsePrefix(string(b.Spec.CIDR)); err != nil {
			return
		}
	}
	c.placed = append(c.placed, placed{b.Name, string(b.Spec.Network), prefix.Masked()})
	if !slices.ContainsFunc(c.pools, func(p PoolCIDR) bool { return p.Owns(b, prefix) }) {
		named := PoolCIDR{Name: b.Spec.Pool, Network: string(b.Spec.Network)}
		c.add(RulePool, object, "%s has no block %s", named, prefix)
	}
	c.node(b, object)
	c.loans(b, object, prefix)
	c.allocations(b, object, prefix)
}

func (c *checker) node(b *v1.IPBlock, object string) {
	if b.Spec.Node == "" {
		return
	}
	if _, exists := c.nodes[string(b.Spec.Node)]; !exists {
		c.add(RuleNode, object, "its node %s does not exist", b.Spec.Node)
		return
	}
	for _, owner := range b.OwnerReferences {
		c.add(RuleOwner, object, "it has the owner %s %s; Kubernetes deletes it together with that", owner.Kind,
			owner.Name)
	}
}

func (c *checker) loans(b *v1.IPBlock, object string, prefix netip.Prefix) {
	for _, l := range b.Spec.Borrowed {
		address, err := netip.ParseAddr(string(l.Address))
		_, exists := c.nodes[string(l.Node)]
		switch {
		case err != nil || !prefix.Contains(address):
			c.add(RuleLoan, object, "%s is lent but not of the block", l.Address)
		case !slices.Contains(b.Spec.Offered, l.Address):
			c.add(RuleLoan, object, "%s is lent to %s but was not offered", l.Address, l.Node)
		case l.Node == b.Spec.Node:
			c.add(RuleLoan, object, "%s is lent to the block's own node", l.Address)
		case !exists:
			c.add(RuleBorrower, object, "%s is lent to node %s, which does not exist", l.Address, l.Node)
		}
	}
}

func (c *checker) allocations(b *v1.IPBlock, object string, prefix netip.Prefix) {
	for _, a := range b.Status.Allocations {
		address, err := netip.ParseAddr(string(a.Address))
		if err != nil || !prefix.Contains(address) {
			c.add(RuleOutside, object, "address %s of %s is not of the block", a.Address, a.Attachment)
			continue
		}
		if slices.Contains(b.Spec.Offered, a.Address) {
			c.add(RuleTwice, object, "address %s of %s is on offer to other nodes", address, a.Attachment)
		}
		h := addressKey{string(b.Spec.Network), address}
		if other, twice := c.holders[h]; twice {
			c.add(RuleTwice, object, "address %s of %s is also in the status of block %s", address, a.Attachment, other)
		}
		c.holders[h] = b.Name
	}
	if n := len(b.Status.Allocations); n != int(b.Status.Used) {
		c.add(RuleAccounting, object, "it counts %d addresses in use and lists %d", b.Status.Used, n)
	}
}

// overlappingBlocks compares neighbours only: of prefixes sorted by address, the shorter first, one overlaps an earlier
// one only if it is within the last one that is not within another.
func (c *checker) overlappingBlocks() {
	slices.SortFunc(c.placed, func(x, y placed) int {
		return cmp.Or(cmp.Compare(x.network, y.network), x.prefix.Addr().Compare(y.prefix.Addr()),
			cmp.Compare(x.prefix.Bits(), y.prefix.Bits()), cmp.Compare(x.name, y.name))
	})
	var last placed
	for _, p := range c.placed {
		if last.prefix.IsValid() && last.network == p.network && last.prefix.Overlaps(p.prefix) {
			c.add(RuleOverlap, "block "+p.name, "%s overlaps %s of block %s", p.prefix, last.prefix, last.name)
			continue
		}
		last = p
	}
}

// Lease is an address of an IPPool or a custom network that a node reports as allocated.
type Lease struct {
	Pool    string
	Network string
	Address netip.Addr
	Holder  string
}

// CheckLeases returns the leases of a node that are neither in its blocks nor lent to it: another node could allocate
// them too. Leases must be read before the blocks. Addresses outside of the pools need no block.
func CheckLeases(pools []PoolCIDR, list []v1.IPBlock, node string, leases []Lease) []Violation {
	var found []Violation
	for _, l := range leases {
		inBlocks := slices.ContainsFunc(pools, func(p PoolCIDR) bool {
			return p.Name == l.Pool && p.Network == l.Network && p.Prefix.Contains(l.Address)
		})
		has := func(b v1.IPBlock) bool { return string(b.Spec.Network) == l.Network && gives(&b, node, l.Address) }
		if inBlocks && !slices.ContainsFunc(list, has) {
			found = append(found, Violation{
				Rule:   RuleLease,
				Object: "node " + node,
				Text:   fmt.Sprintf("address %s of %s is of no block of the node", l.Address, l.Holder),
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

// Share is the part of a pool that a node has, as last published.
type Share struct {
	Pool PoolCIDR // for a block without a pool: the names in the block, and no prefix
	Node string

	Blocks              int
	Used, Cooling, Free int // addresses of its blocks, without those offered to other nodes
	Offered             int // to other nodes, borrowed or not
	Borrowed            int // from blocks of other nodes
}

// Shares lists the shares of all nodes, in the order of the pools and by the nodes' names. Blocks without an owner
// belong to the node "".
func Shares(pools []PoolCIDR, list []v1.IPBlock) []Share {
	found := make(map[Share]*Share) // by a share with pool and node only
	of := func(p PoolCIDR, node string) *Share {
		key := Share{Pool: p, Node: node}
		if found[key] == nil {
			found[key] = &Share{Pool: p, Node: node}
		}
		return found[key]
	}
	for i := range list {
		b := &list[i]
		p := poolOf(b, pools)
		own := of(p, string(b.Spec.Node))
		own.Blocks++
		own.Offered += len(b.Spec.Offered)
		own.Used = own.Used + int(b.Status.Used)
		own.Cooling = own.Cooling + int(b.Status.Cooling)
		own.Free = own.Free + int(b.Status.Free)
		for _, l := range b.Spec.Borrowed {
			of(p, string(l.Node)).Borrowed++
		}
	}
	var shares []Share
	for _, s := range found {
		shares = append(shares, *s)
	}
	rank := func(p PoolCIDR) int { // other pools come last
		return cmp.Or(slices.Index(pools, p)+1, len(pools)+1)
	}
	slices.SortFunc(shares, func(x, y Share) int {
		return cmp.Or(cmp.Compare(rank(x.Pool), rank(y.Pool)), cmp.Compare(x.Pool.Key(), y.Pool.Key()),
			cmp.Compare(x.Node, y.Node))
	})
	return shares
}

// poolOf returns the pool of a block.
func poolOf(b *v1.IPBlock, pools []PoolCIDR) PoolCIDR {
	owns := func(p PoolCIDR) bool { return p.Owns(b, b.Spec.CIDR.Prefix()) } // false for an invalid prefix
	if i := slices.IndexFunc(pools, owns); i >= 0 {
		return pools[i]
	}
	return PoolCIDR{Name: b.Spec.Pool, Network: string(b.Spec.Network)}
}
