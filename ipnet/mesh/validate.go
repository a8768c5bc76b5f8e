package mesh

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/pod"
)

// validation decides which nodes of an event can be reached together.
type validation struct {
	*Mesh
	ev        *pod.SetNodes
	holders   Holders
	ids       map[uint32]string     // name of the node by ID
	addresses map[netip.Addr]string // name of the node by address
	claims    map[string]*claims    // of blocks, by network
	routed    map[string][]routedPrefix
	overlays  map[string]overlay // by network
}

// routedPrefix is a prefix behind a pod of a node.
type routedPrefix struct {
	prefix netip.Prefix
	node   string
}

// validate returns the nodes of an event that can be reached. The nodes that were reached before are validated first.
func (m *Mesh) validate(ev *pod.SetNodes, holders Holders) *nodes {
	v := &validation{
		Mesh:      m,
		ev:        ev,
		holders:   holders,
		ids:       make(map[uint32]string),
		addresses: make(map[netip.Addr]string),
		claims:    make(map[string]*claims),
		routed:    make(map[string][]routedPrefix),
		overlays:  map[string]overlay{pod.DefaultNetwork: m.overlays.main()},
	}
	for _, o := range m.overlays.custom() {
		v.overlays[o.network] = o
	}
	after := &nodes{self: normalised(ev.Self), peers: make(map[string]pod.Node)}
	wanted := v.wanted()
	for _, node := range append(wanted, after.self) {
		v.measure(node)
	}
	v.validateSelf(after.self)
	for _, node := range wanted {
		if why := v.unreachable(node); why != "" {
			ev.Refused[node.Name] = why
			continue
		}
		v.ids[node.ID] = node.Name
		for _, a := range node.Addresses {
			v.addresses[a] = node.Name
		}
		after.peers[node.Name] = v.withOwnBlocks(node)
	}
	return after
}

// wanted are the nodes of the event, in the order of validation, without those that are there twice. Nodes that were
// reached before are first, then older ones: the API server writes the time, while the name of a node that an attacker
// has is no evidence.
func (v *validation) wanted() []pod.Node {
	nodes := make(map[string]pod.Node)
	for _, node := range v.ev.Nodes {
		if _, twice := nodes[node.Name]; twice {
			v.ev.Refused[node.Name] = "it is given twice"
		}
		nodes[node.Name] = normalised(node)
	}
	for name := range v.ev.Refused {
		delete(nodes, name)
	}
	return slices.SortedFunc(maps.Values(nodes), func(a, b pod.Node) int {
		return cmp.Or(cmp.Compare(v.age(a), v.age(b)), a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
	})
}

// age is 0 for a node that was reached before with the same ID and addresses.
func (v *validation) age(node pod.Node) int {
	was, there := v.nodes.peers[node.Name]
	if there && was.ID == node.ID && slices.Equal(was.Addresses, node.Addresses) {
		return 0
	}
	return 1
}

// normalised returns a node with sorted parts, blocks and addresses, without duplicates.
func normalised(node pod.Node) pod.Node {
	blocks := make(map[string][]netip.Prefix)
	routed := make(map[string][]netip.Prefix)
	for _, part := range node.Parts {
		network := cmp.Or(part.Network, pod.DefaultNetwork)
		blocks[network] = append(blocks[network], part.Blocks...)
		routed[network] = append(routed[network], part.Routed...)
	}
	node.Parts = nil
	for _, network := range slices.Sorted(maps.Keys(blocks)) {
		node.Parts = append(node.Parts, pod.NodePart{
			Network: network,
			Blocks:  distinct(blocks[network]),
			Routed:  distinct(routed[network]),
		})
	}
	node.Addresses = slices.Clone(node.Addresses)
	slices.SortFunc(node.Addresses, netip.Addr.Compare)
	return node
}

// distinct sorts prefixes, and removes duplicates.
func distinct(prefixes []netip.Prefix) []netip.Prefix {
	slices.SortFunc(prefixes, netip.Prefix.Compare)
	return slices.Compact(prefixes)
}

// validateSelf adds this node's own entry, and records why this node cannot reach any other.
func (v *validation) validateSelf(self pod.Node) {
	switch {
	case self.ID == 0:
		v.ev.Refused[self.Name] = "it is this node, and has no ID yet: no other node is reached"
	case self.ID > desired.MaxNode:
		v.ev.Refused[self.Name] = fmt.Sprintf("it is this node, and its ID %d is above %d: no other node is reached",
			self.ID, desired.MaxNode)
	case !v.networks.Config.EndOf(self).IsValid():
		v.ev.Refused[self.Name] = "it is this node, and " + v.lacksAddress() + ": no other node is reached"
	case !v.networks.Config.HasTunnels() && v.config.Uplink == "":
		v.ev.Refused[self.Name] = "it is this node, and there are neither tunnels nor an uplink: no other node is reached"
	}
	v.ids[self.ID] = self.Name
	for _, a := range self.Addresses {
		v.addresses[a] = self.Name
	}
	for _, part := range self.Parts {
		for _, block := range part.Blocks {
			v.claims[part.Network].take(block, self.Name)
		}
	}
}

// takeRouted records the node of prefixes behind its pods.
func (v *validation) takeRouted(network string, prefixes []netip.Prefix, node string) {
	for _, p := range prefixes {
		v.routed[network] = append(v.routed[network], routedPrefix{p, node})
	}
}

// wrongRouted says why a prefix behind a pod of another node cannot be reached; "" if it can.
func (v *validation) wrongRouted(network string, p netip.Prefix) string {
	if !p.IsValid() || p != p.Masked() {
		return "it is not a prefix, or has host bits set"
	}
	for _, other := range v.routed[network] {
		if other.prefix.Overlaps(p) {
			return fmt.Sprintf("%s leads to node %s", other.prefix, other.node)
		}
	}
	if holder := v.holders.RoutedTo(network, p); holder != "" {
		return "it leads to " + holder + " on this node"
	}
	return ""
}

func (v *validation) lacksAddress() string {
	if !v.networks.Config.HasTunnels() {
		return "it has no address"
	}
	return "it has no address of the family that " + v.networks.Config.Tunnel + " needs"
}

// unreachable says why a node cannot be reached; "" if it can.
func (v *validation) unreachable(node pod.Node) string {
	switch other := v.ids[node.ID]; {
	case node.Name == v.ev.Self.Name:
		return "it has the name of this node"
	case node.ID == 0:
		return "it has no ID yet"
	case node.ID > desired.MaxNode:
		return fmt.Sprintf("its ID %d is above %d", node.ID, desired.MaxNode)
	case other != "":
		return fmt.Sprintf("its ID %d is already used by node %s", node.ID, other)
	case !v.networks.Config.EndOf(node).IsValid():
		return v.lacksAddress()
	}
	for _, a := range node.Addresses {
		if other := v.addresses[a]; other != "" {
			return fmt.Sprintf("its address %s is already used by node %s", a, other)
		}
	}
	return ""
}

// withOwnBlocks returns a node without the blocks that another node has.
func (v *validation) withOwnBlocks(node pod.Node) pod.Node {
	var faults []string
	var parts []pod.NodePart
	for _, part := range node.Parts {
		own := pod.NodePart{Network: part.Network}
		for _, block := range part.Blocks {
			if why := v.wrongBlock(part.Network, block); why != "" {
				faults = append(faults, fmt.Sprintf("block %s of network %s: %s", block, part.Network, why))
				continue
			}
			if why := v.unroutable(part.Network, block); why != "" {
				faults = append(faults, fmt.Sprintf("block %s of network %s: %s", block, part.Network, why))
			}
			v.claims[part.Network].take(block, node.Name)
			own.Blocks = append(own.Blocks, block)
		}
		for _, p := range part.Routed {
			if why := v.wrongRouted(part.Network, p); why != "" {
				faults = append(faults, fmt.Sprintf("prefix %s of network %s: %s", p, part.Network, why))
				continue
			}
			own.Routed = append(own.Routed, p)
		}
		v.takeRouted(part.Network, own.Routed, node.Name)
		parts = append(parts, own)
	}
	if len(faults) > 0 {
		v.ev.Refused[node.Name] = strings.Join(faults, "; ")
	}
	node.Parts = parts
	return node
}

// wrongBlock says why a block of another node cannot be reached; "" if it can.
func (v *validation) wrongBlock(network string, block netip.Prefix) string {
	if !block.IsValid() || block != block.Masked() {
		return "it is not a prefix, or has host bits set"
	}
	if other := v.claims[network].holder(block); other != "" {
		return "it overlaps one of node " + other
	}
	if block.IsSingleIP() {
		if holder := v.holders.HolderOn(network, block.Addr()); holder != "" {
			return "it is the address of " + holder + " on this node"
		}
		if addresses := v.networks.Allocator(network); addresses != nil && addresses.Allocates(block.Addr()) {
			return "this node allocates it"
		}
	}
	return ""
}

// unroutable says why no route leads to a block with the current pools and networks; "" if one does.
func (v *validation) unroutable(network string, block netip.Prefix) string {
	if o, known := v.overlays[network]; known && !o.isBridged() {
		return o.unroutable(block)
	}
	return ""
}

// measure records the prefix lengths of the blocks of a node.
func (v *validation) measure(node pod.Node) {
	for _, part := range node.Parts {
		c := v.claims[part.Network]
		if c == nil {
			c = newClaims()
			v.claims[part.Network] = c
		}
		for _, block := range part.Blocks {
			c.lengths[block.Bits()] = true
		}
	}
}

// claims records the owners of the blocks of a network. A single address inside a block is no conflict: one node lends
// it to another.
type claims struct {
	lengths map[int]bool            // of all prefixes that are claimed later
	taken   map[netip.Prefix]string // by block, its node
	around  map[netip.Prefix]string // by prefix that contains a taken block, the node of that block
}

func newClaims() *claims {
	return &claims{
		lengths: make(map[int]bool),
		taken:   make(map[netip.Prefix]string),
		around:  make(map[netip.Prefix]string),
	}
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

// holder returns the node of a block that overlaps; "" if no block overlaps.
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

// outer iterates over the shorter prefixes that contain a block.
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
