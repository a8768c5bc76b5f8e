package ipnet

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/weftnet/weft/pod"
)

// judgement decides which nodes can be reached together.
type judgement struct {
	*Network
	ev        *pod.SetNodes
	ids       map[uint32]string     // the node that has each
	addresses map[netip.Addr]string // the node that has each
	claims    map[string]*claims    // of blocks, by network
	overlays  map[string]overlay    // by network
}

// judge is the mesh of an event. Those that were reached before are judged first.
func (n *Network) judge(ev *pod.SetNodes) *mesh {
	j := &judgement{
		Network: n, ev: ev, ids: make(map[uint32]string), addresses: make(map[netip.Addr]string),
		claims: make(map[string]*claims), overlays: map[string]overlay{pod.DefaultNetwork: n.defaultOverlay()},
	}
	for _, o := range n.overlays() {
		j.overlays[o.network] = o
	}
	m := &mesh{self: normalised(ev.Self), nodes: make(map[string]pod.Node)}
	wanted := j.wanted()
	for _, node := range append(wanted, m.self) {
		j.measure(node)
	}
	j.judgeSelf(m.self)
	for _, node := range wanted {
		if why := j.unreachable(node); why != "" {
			ev.Refused[node.Name] = why
			continue
		}
		j.ids[node.ID] = node.Name
		for _, a := range node.Addresses {
			j.addresses[a] = node.Name
		}
		m.nodes[node.Name] = j.withOwnBlocks(node)
	}
	return m
}

// wanted are the nodes of the event, in the order in which they are judged. One that is there twice is not one of them.
func (j *judgement) wanted() []pod.Node {
	nodes := make(map[string]pod.Node)
	for _, node := range j.ev.Nodes {
		if _, twice := nodes[node.Name]; twice {
			j.ev.Refused[node.Name] = "it is there twice"
		}
		nodes[node.Name] = normalised(node)
	}
	for name := range j.ev.Refused {
		delete(nodes, name)
	}
	return slices.SortedFunc(maps.Values(nodes), func(a, b pod.Node) int {
		return cmp.Or(cmp.Compare(j.age(a), j.age(b)), cmp.Compare(a.Name, b.Name))
	})
}

// age is 0 for a node that was reached before by what it has now.
func (j *judgement) age(node pod.Node) int {
	was, there := j.mesh.nodes[node.Name]
	if there && was.ID == node.ID && slices.Equal(was.Addresses, node.Addresses) {
		return 0
	}
	return 1
}

// normalised is a node with its parts and what they hold in one order, each once.
func normalised(node pod.Node) pod.Node {
	blocks := make(map[string][]netip.Prefix)
	for _, part := range node.Parts {
		network := cmp.Or(part.Network, pod.DefaultNetwork)
		blocks[network] = append(blocks[network], part.Blocks...)
	}
	node.Parts = nil
	for _, network := range slices.Sorted(maps.Keys(blocks)) {
		slices.SortFunc(blocks[network], netip.Prefix.Compare)
		node.Parts = append(node.Parts, pod.NodePart{Network: network, Blocks: slices.Compact(blocks[network])})
	}
	node.Addresses = slices.Clone(node.Addresses)
	slices.SortFunc(node.Addresses, netip.Addr.Compare)
	return node
}

// judgeSelf takes over this node's own entry, and returns why the node cannot reach any other.
func (j *judgement) judgeSelf(self pod.Node) {
	switch {
	case self.ID == 0:
		j.ev.Refused[self.Name] = "it is this node, and has no ID yet: no other node is reached"
	case self.ID > maxNode:
		j.ev.Refused[self.Name] = fmt.Sprintf("it is this node, and its ID %d is above %d: no other node is reached", self.ID, maxNode)
	case !j.config.endOf(self).IsValid():
		j.ev.Refused[self.Name] = "it is this node, and " + j.lacksAddress() + ": no other node is reached"
	case !j.config.hasTunnels() && j.config.Uplink == "":
		j.ev.Refused[self.Name] = "it is this node, and there are neither tunnels nor an uplink: no other node is reached"
	}
	j.ids[self.ID] = self.Name
	for _, a := range self.Addresses {
		j.addresses[a] = self.Name
	}
	for _, part := range self.Parts {
		for _, block := range part.Blocks {
			j.claims[part.Network].take(block, self.Name)
		}
	}
}

func (j *judgement) lacksAddress() string {
	if !j.config.hasTunnels() {
		return "it has no address"
	}
	return "it has no address of the family that " + j.config.Tunnel + " needs"
}

// unreachable says why a node cannot be reached; "" if it can.
func (j *judgement) unreachable(node pod.Node) string {
	switch other := j.ids[node.ID]; {
	case node.Name == j.ev.Self.Name:
		return "it has the name of this node"
	case node.ID == 0:
		return "it has no ID yet"
	case node.ID > maxNode:
		return fmt.Sprintf("its ID %d is above %d", node.ID, maxNode)
	case other != "":
		return fmt.Sprintf("its ID %d is that of node %s", node.ID, other)
	case !j.config.endOf(node).IsValid():
		return j.lacksAddress()
	}
	for _, a := range node.Addresses {
		if other := j.addresses[a]; other != "" {
			return fmt.Sprintf("its address %s is that of node %s", a, other)
		}
	}
	return ""
}

// withOwnBlocks returns a node with those of its blocks that no other node has.
func (j *judgement) withOwnBlocks(node pod.Node) pod.Node {
	var faults []string
	var parts []pod.NodePart
	for _, part := range node.Parts {
		own := pod.NodePart{Network: part.Network}
		for _, block := range part.Blocks {
			if why := j.wrongBlock(part.Network, block); why != "" {
				faults = append(faults, fmt.Sprintf("block %s of network %s: %s", block, part.Network, why))
				continue
			}
			if why := j.unroutable(part.Network, block); why != "" {
				faults = append(faults, fmt.Sprintf("block %s of network %s: %s", block, part.Network, why))
			}
			j.claims[part.Network].take(block, node.Name)
			own.Blocks = append(own.Blocks, block)
		}
		parts = append(parts, own)
	}
	if len(faults) > 0 {
		j.ev.Refused[node.Name] = strings.Join(faults, "; ")
	}
	node.Parts = parts
	return node
}

// wrongBlock says why a block of another node cannot be reached; "" if it can.
func (j *judgement) wrongBlock(network string, block netip.Prefix) string {
	if !block.IsValid() || block != block.Masked() {
		return "it is no prefix, or has bits set behind its length"
	}
	if other := j.claims[network].holder(block); other != "" {
		return "it overlaps one of node " + other
	}
	if block.IsSingleIP() {
		if c := j.holderOn(network, block.Addr()); c != nil {
			return "it is the address of " + c.Name() + " on this node"
		}
		if addresses := j.allocator(networkOf(network)); addresses != nil && addresses.Gives(block.Addr()) {
			return "this node gives it out itself"
		}
	}
	return ""
}

// unroutable says why no route leads to a block as pools and networks are now; "" if one does. When they change, one may.
func (j *judgement) unroutable(network string, block netip.Prefix) string {
	if o, known := j.overlays[network]; known && !o.isBridged() {
		return o.unroutable(block)
	}
	return ""
}

// holderOn is the attachment of this node that has an address on a network.
func (n *Network) holderOn(network string, a netip.Addr) *connection {
	network = networkOf(network)
	for _, c := range n.wired {
		for _, i := range c.Interfaces {
			if i.Network == network && addressIn(i, a) >= 0 {
				return c
			}
		}
	}
	return nil
}

// measure makes room for the claims of a node.
func (j *judgement) measure(node pod.Node) {
	for _, part := range node.Parts {
		c := j.claims[part.Network]
		if c == nil {
			c = newClaims()
			j.claims[part.Network] = c
		}
		for _, block := range part.Blocks {
			c.lengths[block.Bits()] = true
		}
	}
}
