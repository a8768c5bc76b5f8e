package policies

import (
	"net/netip"
	"slices"

	"github.com/gaissmai/bart"
	corev1 "k8s.io/api/core/v1"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/policy"
)

// The kubelet of a node writes the addresses of its Node and of its pods. An address that only pods of another node can
// have is not its own:
//
//   - As an address of the Node it would make that pod a node for the policies that deny nodes.
//   - As an address of a pod it would give that pod the rights of the labels of its own one.
//
// An address in no known block counts: the blocks of its node may not be known yet, or another CNI plugin made the
// interface.

// owners says which nodes have the addresses for pods of the default network.
type owners struct{ nodes bart.Table[[]string] }

// ownersOf indexes the blocks of nodes. A single address that one node lends to another is the other one's.
func ownersOf(blocks map[string][]pod.NodePart) *owners {
	o := &owners{}
	for name, parts := range blocks {
		for _, part := range parts {
			if part.Network == policy.DefaultNetwork {
				o.add(name, part.Blocks)
			}
		}
	}
	return o
}

func (o *owners) add(name string, blocks []netip.Prefix) {
	for _, b := range blocks {
		nodes, _ := o.nodes.Get(b)
		o.nodes.Insert(b, append(nodes, name))
	}
}

// isOther reports whether an address is for pods of a node other than this one.
func (o *owners) isOther(node string, a netip.Addr) bool {
	if o == nil {
		return false
	}
	nodes, has := o.nodes.Lookup(a)
	return has && !slices.Contains(nodes, node)
}

// differ reports whether two states decide differently about an address of a node.
func (o *owners) differ(before *owners, node string, addresses []netip.Addr) bool {
	return slices.ContainsFunc(addresses, func(a netip.Addr) bool {
		return o.isOther(node, a) != before.isOther(node, a)
	})
}

// addressesOf lists the addresses of a Node that count.
func (e *evidence) addressesOf(n *corev1.Node) []netip.Prefix {
	var list []netip.Prefix
	for _, a := range nodeAddresses(n) {
		if !e.owners.isOther(n.Name, a) {
			list = append(list, netaddr.Single(a))
		}
	}
	return list
}

// nodeAddresses lists the addresses of a Node as its kubelet reports them.
func nodeAddresses(n *corev1.Node) []netip.Addr {
	var list []netip.Addr
	for _, a := range n.Status.Addresses {
		if ip, err := policy.ParseAddress(a.Address); err == nil {
			list = append(list, ip)
		}
	}
	return list
}

// statusOf returns the main interface of a pod as its kubelet reports it, with the addresses that count. The kubelet of
// this node is believed.
func (e *evidence) statusOf(o *corev1.Pod) policy.Interface {
	main := policy.Interface{
		Name:      mainInterface,
		Main:      true,
		Networks:  []string{policy.DefaultNetwork},
		Addresses: podAddresses(o),
	}
	if o.Spec.NodeName != e.node {
		main.Addresses = slices.DeleteFunc(main.Addresses, func(a netip.Addr) bool {
			return e.owners.isOther(o.Spec.NodeName, a)
		})
	}
	return main
}
