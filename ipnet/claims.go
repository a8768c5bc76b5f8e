package ipnet

import "net/netip"

// claims are the blocks of a network and whose they are. A single address inside a block is not in its way: one node lends
// it to another.
type claims struct {
	lengths map[int]bool            // of all prefixes that will come
	taken   map[netip.Prefix]string // the node of each
	around  map[netip.Prefix]string // prefixes with a taken one inside, and its node
}

func newClaims() *claims {
	return &claims{lengths: make(map[int]bool), taken: make(map[netip.Prefix]string), around: make(map[netip.Prefix]string)}
}

func (c *claims) take(block netip.Prefix, node string) {
	c.taken[block] = node
	if block.IsSingleIP() {
		return
	}
	for p := range c.outer(block) {
		c.around[p] = node
	}
}

// holder is a node with a block in whose way another one is; "" if there is none.
func (c *claims) holder(block netip.Prefix) string {
	if node := c.taken[block]; node != "" {
		return node
	}
	if block.IsSingleIP() {
		return ""
	}
	for p := range c.outer(block) {
		if node := c.taken[p]; node != "" {
			return node
		}
	}
	return c.around[block]
}

// outer are the prefixes of shorter lengths that a block is in.
func (c *claims) outer(block netip.Prefix) func(yield func(netip.Prefix) bool) {
	return func(yield func(netip.Prefix) bool) {
		for length := range c.lengths {
			if length < 0 || length >= block.Bits() {
				continue
			}
			p, _ := block.Addr().Prefix(length)
			if !yield(p) {
				return
			}
		}
	}
}
