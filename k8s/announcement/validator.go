// Package announcement writes the NodeNetwork of this node, and decides what this node accepts of the NodeNetworks of
// other nodes.
//
// The agent of a node writes its NodeNetwork, so with a stolen token of an agent an attacker announces anything. A
// route needs a grant by an object that this token cannot write, or cannot write in another node's name:
//
//	tunnel endpoint   an InternalIP of the Node, in no prefix of another node
//	default network   the Node's podCIDRs, or an IPBlock of the node that is cut from a known IPPool
//	custom network    an IPBlock of the node that is cut from the known CustomNetwork
//	single address    an IPBlock of another node that offers the address and lends it to the node
//	routed prefix     routedPrefixes of the CustomNetwork: any node may have the pod that it leads to
//	client addresses  no grant: the ranges only say what this node may send to that one
//
// Addresses that no pod can have are always rejected. The kubelet of a node writes its InternalIPs, so they are its
// word only: an InternalIP in a prefix that another node is granted is no evidence against that node, and is not used.
// Validation has no clock and no I/O: it does not depend on the order of the objects.
package announcement

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/gaissmai/bart"

	"github.com/weftnet/weft/internal/line"
	"github.com/weftnet/weft/internal/netaddr"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/blocks"
	"github.com/weftnet/weft/pod"
)

// Cluster is the objects that announcements are validated against.
type Cluster struct {
	Nodes    map[string]Node   // the Node objects, by name
	Pools    []blocks.PoolCIDR // the valid IPPools, and the CIDRs of the valid CustomNetworks
	Blocks   []*v1.IPBlock     // of all nodes
	Services []netip.Prefix    // the known Service ranges
	Servers  []netip.Addr      // addresses of the API server

	Routed map[string][]netip.Prefix // routedPrefixes of the valid CustomNetworks, by name

	Former Former
}

// Node is the grants of a Node object.
type Node struct {
	Ranges    []netip.Prefix // its podCIDRs
	Addresses []netip.Addr   // its InternalIPs
	Created   time.Time      // by the API server
}

// Rejection is an ignored part of an announcement.
type Rejection struct {
	Node    string
	Network string // "" for a tunnel endpoint, and for a whole announcement
	What    string // address or prefix; "" for a whole announcement
	Reason  string
}

// String returns one line.
func (r Rejection) String() string {
	switch {
	case r.What == "":
		return fmt.Sprintf("node %s: %s", r.Node, r.Reason)
	case r.Network == "":
		return fmt.Sprintf("node %s: address %s: %s", r.Node, r.What, r.Reason)
	}
	return fmt.Sprintf("node %s: %s of network %s: %s", r.Node, r.What, r.Network, r.Reason)
}

// Validator validates announcements against one state of the cluster. It is for one goroutine.
type Validator struct {
	cluster  Cluster
	pools    map[poolName][]blocks.PoolCIDR
	holders  map[place]*v1.IPBlock // the block of each prefix
	loans    map[place]*v1.IPBlock // the block of each lent address, as a prefix
	granted  bart.Table[grantees]  // the nodes of each granted prefix of the default network
	machines bart.Table[string]    // the node of each InternalIP, without those in prefixes of other nodes
	used     Former                // former grants that were needed
}

// poolName is the name of an IPPool, or of a CustomNetwork.
type poolName struct{ pool, network string }

// place is a prefix of a network, "" being the default network.
type place struct {
	network string
	prefix  netip.Prefix
}

// NewValidator indexes a state of the cluster, which must not change afterwards.
func NewValidator(c Cluster) *Validator {
	v := &Validator{
		cluster: c, pools: make(map[poolName][]blocks.PoolCIDR),
		holders: make(map[place]*v1.IPBlock), loans: make(map[place]*v1.IPBlock),
	}
	for _, p := range c.Pools {
		name := poolName{p.Name, p.Network}
		v.pools[name] = append(v.pools[name], p)
	}
	for _, b := range c.Blocks {
		v.index(b)
	}
	v.indexGrants()
	v.indexMachines()
	return v
}

// grantees are the nodes that are granted a prefix, with the object that grants it.
type grantees map[string]string

// indexGrants records the prefixes of the default network that nodes are granted now.
func (v *Validator) indexGrants() {
	add := func(p netip.Prefix, node, by string) {
		nodes, has := v.granted.Get(p)
		if !has {
			nodes = make(grantees)
			v.granted.Insert(p, nodes)
		}
		nodes[node] = by
	}
	for name, n := range v.cluster.Nodes {
		for _, r := range n.Ranges {
			add(r, name, "the podCIDR "+r.String())
		}
	}
	for at, b := range v.holders {
		if at.network == "" && b.Spec.Node != "" && v.ofPool(b, at.prefix) == "" {
			add(at.prefix, string(b.Spec.Node), "IPBlock "+b.Name)
		}
	}
	for at, b := range v.loans {
		prefix, _ := blocks.Parse(b) // it was indexed
		if at.network != "" || v.ofPool(b, prefix) != "" {
			continue
		}
		for _, l := range b.Spec.Borrowed {
			if string(l.Address) == at.prefix.Addr().String() {
				add(at.prefix, string(l.Node), "a loan of IPBlock "+b.Name)
			}
		}
	}
	v.used = Former{} // no announcement depends on it yet
}

// indexMachines records the InternalIPs that count against prefixes.
func (v *Validator) indexMachines() {
	for _, name := range slices.Sorted(maps.Keys(v.cluster.Nodes)) {
		for _, a := range v.cluster.Nodes[name].Addresses {
			_, isKnown := v.machines.Get(netaddr.Single(a))
			if !isKnown && v.ofOther(name, a) == "" {
				v.machines.Insert(netaddr.Single(a), name)
			}
		}
	}
}

// ofOther says which prefix of another node has an InternalIP that a node reports; "" if none has. The node is not
// believed: one kubelet could take the routes of any other node.
func (v *Validator) ofOther(node string, a netip.Addr) string {
	for _, nodes := range v.granted.Supernets(netaddr.Single(a)) {
		for _, other := range slices.Sorted(maps.Keys(nodes)) {
			if other != node {
				return fmt.Sprintf("it is in %s of node %s", nodes[other], other)
			}
		}
	}
	return ""
}

// index records the grants of a valid block. Its name follows from its prefix, so there is one block of each.
func (v *Validator) index(b *v1.IPBlock) {
	prefix, err := blocks.Parse(b)
	if err != nil {
		return
	}
	network := string(b.Spec.Network)
	v.holders[place{network, prefix}] = b
	for _, l := range b.Spec.Borrowed {
		a, err := netip.ParseAddr(string(l.Address))
		if err == nil && prefix.Contains(a) && slices.Contains(b.Spec.Offered, l.Address) && l.Node != b.Spec.Node {
			v.loans[place{network, netaddr.Single(a)}] = b
		}
	}
}

// Accept returns the accepted and the rejected parts of an announcement. Without a Node object it accepts nothing.
func (v *Validator) Accept(n *v1.NodeNetwork) (pod.Node, []Rejection) {
	accepted := pod.Node{Name: n.Name}
	machine, exists := v.cluster.Nodes[n.Name]
	if !exists {
		return accepted, []Rejection{{Node: n.Name, Reason: "there is no Node of this name"}}
	}
	accepted.Created = machine.Created
	if n.Spec.NodeIDConfirmed {
		accepted.ID = uint32(n.Spec.NodeID)
	}
	var rejected []Rejection
	reject := func(network, text, reason string) {
		what := line.Cut(text, longest, "")
		rejected = append(rejected, Rejection{Node: n.Name, Network: network, What: what, Reason: reason})
	}
	for _, text := range n.Spec.Addresses {
		if a, reason := v.endpoint(n.Name, string(text)); reason != "" {
			reject("", string(text), reason)
		} else {
			accepted.Addresses = append(accepted.Addresses, a)
		}
	}
	for _, text := range n.Spec.ServiceClientRanges {
		if p, err := netip.ParsePrefix(string(text)); err != nil || p != p.Masked() {
			reject("", string(text), "it is not a CIDR, or has host bits set")
		} else {
			accepted.ClientRanges = append(accepted.ClientRanges, p)
		}
	}
	for _, p := range n.Spec.Networks {
		part := pod.NodePart{Network: p.Name}
		for _, text := range p.CIDRs {
			if prefix, reason := v.prefix(n.Name, p.Name, string(text)); reason != "" {
				reject(p.Name, string(text), reason)
			} else {
				part.Blocks = append(part.Blocks, prefix)
			}
		}
		for _, text := range p.RoutedPrefixes {
			if prefix, reason := v.routed(p.Name, string(text)); reason != "" {
				reject(p.Name, string(text), reason)
			} else {
				part.Routed = append(part.Routed, prefix)
			}
		}
		accepted.Parts = append(accepted.Parts, part)
	}
	return accepted, rejected
}

// endpoint validates the address of a tunnel.
func (v *Validator) endpoint(node, text string) (netip.Addr, string) {
	a, err := netip.ParseAddr(text)
	if err != nil {
		return a, "it is not an IP address"
	}
	if kind := specialIn(netaddr.Single(a)); kind != "" {
		return a, "it is " + kind
	}
	if !slices.Contains(v.cluster.Nodes[node].Addresses, a) {
		return a, "it is not an InternalIP of the Node"
	}
	return a, v.ofOther(node, a)
}

// prefix validates the prefix of a route.
func (v *Validator) prefix(node, network, text string) (netip.Prefix, string) {
	p, err := netip.ParsePrefix(text)
	if err != nil || p != p.Masked() {
		return p, "it is not a CIDR, or has host bits set"
	}
	if kind := specialIn(p); kind != "" {
		return p, "it has " + kind + " addresses"
	}
	if network == "" {
		return p, "it has no network"
	}
	if network == pod.DefaultNetwork {
		network = "" // its name in blocks and pools
		if reason := v.reserved(p); reason != "" {
			return p, reason
		}
	}
	return p, v.grant(node, network, p)
}

// routed validates a prefix behind a pod: the network permits it on all nodes.
func (v *Validator) routed(network, text string) (netip.Prefix, string) {
	p, err := netip.ParsePrefix(text)
	if err != nil || p != p.Masked() {
		return p, "it is not a CIDR, or has host bits set"
	}
	isPermitted := slices.ContainsFunc(v.cluster.Routed[network], func(o netip.Prefix) bool {
		return o.Bits() <= p.Bits() && o.Contains(p.Addr())
	})
	if !isPermitted {
		return p, "it is not in routedPrefixes of the CustomNetwork"
	}
	return p, ""
}

// reserved says which addresses of nodes, Services or the API server a prefix of the default network contains. Custom
// networks are separate and may use the same addresses.
func (v *Validator) reserved(p netip.Prefix) string {
	for _, s := range v.cluster.Services {
		if s.Overlaps(p) {
			return "it overlaps the Service range " + s.String()
		}
	}
	for _, a := range v.cluster.Servers {
		if p.Contains(a) {
			return "it has the API server's address " + a.String()
		}
	}
	for found, name := range v.machines.Subnets(p) {
		return fmt.Sprintf("it has the InternalIP %s of node %s", found.Addr(), name)
	}
	return ""
}

// grant says why no object grants a node a prefix of a network; "" if one does.
func (v *Validator) grant(node, network string, p netip.Prefix) string {
	if network == "" && within(v.cluster.Nodes[node].Ranges, p) {
		return ""
	}
	at := place{network, p}
	if b := v.holders[at]; b != nil {
		if string(b.Spec.Node) == node {
			return v.ofPool(b, p)
		}
		return fmt.Sprintf("IPBlock %s belongs to node %s", b.Name, cmp.Or(string(b.Spec.Node), "(none)"))
	}
	if !p.IsSingleIP() {
		return "it is neither in the Node's podCIDRs nor an IPBlock of the node"
	}
	if b := v.loans[at]; b != nil && lentTo(b, p.Addr(), node) {
		prefix, _ := blocks.Parse(b) // it was indexed
		return v.ofPool(b, prefix)
	}
	if network == "" && v.wasRange(node, p) {
		return ""
	}
	return "it is not in the Node's podCIDRs, and no IPBlock lends it to the node"
}

// ofPool says why a block belongs to no pool of the administrator; "" if it does.
func (v *Validator) ofPool(b *v1.IPBlock, prefix netip.Prefix) string {
	name := poolName{b.Spec.Pool, string(b.Spec.Network)}
	pools, known := v.pools[name]
	if slices.ContainsFunc(pools, func(p blocks.PoolCIDR) bool { return p.Has(prefix) }) {
		return ""
	}
	what := blocks.PoolCIDR{Name: name.pool, Network: name.network}.String()
	switch {
	case v.wasBlock(b, prefix):
		return ""
	case known:
		return fmt.Sprintf("IPBlock %s is not a block of %s", b.Name, what)
	}
	return fmt.Sprintf("IPBlock %s names %s, which does not exist or is not valid", b.Name, what)
}

// lentTo reports whether a block lends an address to a node.
func lentTo(b *v1.IPBlock, a netip.Addr, node string) bool {
	return slices.ContainsFunc(b.Spec.Borrowed, func(l v1.Loan) bool {
		return string(l.Address) == a.String() && string(l.Node) == node
	})
}

// within reports whether a prefix is one of the ranges or a part of one.
func within(ranges []netip.Prefix, p netip.Prefix) bool {
	return slices.ContainsFunc(ranges, func(r netip.Prefix) bool {
		return r.Bits() <= p.Bits() && r.Contains(p.Addr())
	})
}

// longest is the length of the longest CIDR that the schema of the API server allows, and of texts of other nodes in
// logs.
const longest = 43

// special lists the addresses that no pod can have, in any network.
var special = []struct {
	prefix netip.Prefix
	name   string
}{
	{netip.MustParsePrefix("0.0.0.0/8"), "unspecified"},
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast"},
	{netip.MustParsePrefix("255.255.255.255/32"), "broadcast"},
	{netip.MustParsePrefix("::/128"), "unspecified"},
	{netip.MustParsePrefix("::1/128"), "loopback"},
	{netip.MustParsePrefix("::ffff:0:0/96"), "IPv4-mapped"},
	{netip.MustParsePrefix("fe80::/10"), "link-local"},
	{netip.MustParsePrefix("ff00::/8"), "multicast"},
}

// specialIn returns the kind of special addresses in a prefix, or "".
func specialIn(p netip.Prefix) string {
	for _, s := range special {
		if s.prefix.Overlaps(p) {
			return s.name
		}
	}
	return ""
}
