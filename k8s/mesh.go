package k8s

import (
	"net/netip"
	"slices"
	"strings"

	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/blocks"
	"github.com/weftnet/weft/pod"
)

// NodeID is the number that this node made sure of; 0: it has none yet.
func (c *Cluster) NodeID() uint32 {
	own, there := c.nodes.one(c.config.Node)
	if !there || !own.Spec.NodeIDConfirmed {
		return 0
	}
	return uint32(own.Spec.NodeID)
}

// Nodes are the other nodes, as they say that they are reached.
func (c *Cluster) Nodes() []pod.Node {
	var nodes []pod.Node
	for _, n := range c.NodeNetworks() {
		node := pod.Node{Name: n.Name}
		if n.Spec.NodeIDConfirmed {
			node.ID = uint32(n.Spec.NodeID)
		}
		for _, text := range n.Spec.Addresses {
			if a, err := netip.ParseAddr(string(text)); err == nil {
				node.Addresses = append(node.Addresses, a)
			}
		}
		for _, p := range n.Spec.Networks {
			node.Parts = append(node.Parts, pod.NodePart{Network: p.Name, Blocks: prefixes(p.CIDRs)})
		}
		nodes = append(nodes, node)
	}
	slices.SortFunc(nodes, func(x, y pod.Node) int { return strings.Compare(x.Name, y.Name) })
	return nodes
}

// PodBlocks are a keeper's blocks in the words of the node: its own, and of other nodes' the addresses that they lend it.
func PodBlocks(node string, held []v1.IPBlock) []pod.Block {
	var list []pod.Block
	for i := range held {
		b := &held[i]
		prefix, err := blocks.Parse(b)
		if err != nil {
			continue
		}
		if string(b.Spec.Node) == node {
			list = append(list, pod.Block{Network: string(b.Spec.Network), Prefix: prefix, Withheld: addresses(b.Spec.Offered)})
			continue
		}
		for _, l := range b.Spec.Borrowed {
			if a, err := netip.ParseAddr(string(l.Address)); err == nil && string(l.Node) == node {
				list = append(list, pod.Block{Network: string(b.Spec.Network), Prefix: netip.PrefixFrom(a, a.BitLen())})
			}
		}
	}
	return list
}

// addresses reads what the API server has checked; what is none is left out.
func addresses(texts []v1.IP) []netip.Addr {
	var read []netip.Addr
	for _, text := range texts {
		if a, err := netip.ParseAddr(string(text)); err == nil {
			read = append(read, a)
		}
	}
	return read
}
