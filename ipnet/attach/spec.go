package attach

import (
	"net/netip"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/pod"
)

// spec is the resolved request for one interface of a pod, before its addresses are allocated.
type spec struct {
	name string // in the pod
	linkChoice
	network   network
	addresses addressChoice
	routes    routeChoice
	moving    pod.Moving // permitted by the network
	routed    []netip.Prefix
	limits    pod.Limits
	vlans     netaddr.VLANs // of a trunk
	memif     memifChoice
	dns       pod.DNS // of the network, if the options request it
	source    source
}

// linkChoice is the link to the pod.
type linkChoice struct {
	kind   string      // pod.TypeTap, TypeVeth, TypeMemif or TypeIPAM
	object string      // name in the dataplane
	mac    netaddr.MAC // of the pod's end
	mtu    int
	queues queues
}

// queues are the numbers of queues of the pod's end: of a memif as requested, of a tap or veth as recorded.
type queues struct{ rx, tx int }

// addressChoice are the addresses that an interface requests. Without any, its network chooses them.
type addressChoice struct {
	wanted    []netip.Addr   // to be allocated; at most one a family
	claim     *pod.IPAMClaim // that holds wanted, or will hold what the interface gets; nil: none
	brought   []netip.Prefix // requested by the pod on a network without addresses; at most one a family
	delegated bool           // another plugin allocated wanted
}

// routeChoice says which routes an interface gets.
type routeChoice struct {
	toNetwork bool        // to the other addresses of its network
	isDefault bool        // the default routes
	foreign   []pod.Route // the routes of another plugin

	requested    []pod.RouteRequest // by the options
	wantsDefault bool               // the options request the default routes of the pod
	gateway      pod.Gateway        // next hop of these; zero: the gateway of the interface
	forwarding   bool               // the pod's kernel forwards packets from the interface
}

// memifChoice is the request for a memif, and its device.
type memifChoice struct {
	options  pod.MemifOptions
	claimed  string     // id of the allocation of its claim; "": no claim requests it
	assigned *pod.Memif // nil before assignDevices, and for other types
}

// source names where an interface is requested.
type source struct {
	definition string // its NetworkAttachmentDefinition
	options    string // of its options, for errors
}

// network is the network of an interface: the network default, the network stub, or a custom network.
type network struct {
	name   string           // "" = default
	custom *networks.Custom // nil: the network is not a custom network
	node   *networks.Networks
}

// networkNamed returns a network of the node. A custom network may be unknown.
func networkNamed(name string, node *networks.Networks) network {
	name = desired.NetworkOf(name)
	return network{name: name, custom: node.Custom(name), node: node}
}

// isDefault reports whether the network is the network default.
func (n network) isDefault() bool { return n.name == "" }

// isStub reports whether the network is the network stub, which has no other members.
func (n network) isStub() bool { return n.name == pod.StubNetwork }

// isBridged reports whether the interfaces of the network are on one link.
func (n network) isBridged() bool { return n.custom != nil && n.custom.Network.Type == pod.L2 }

// isDirect reports whether the network connects two memifs.
func (n network) isDirect() bool { return n.custom != nil && n.custom.Network.Direct }

// hasNoCIDRs reports whether the network is a custom network on which Weft allocates no addresses.
func (n network) hasNoCIDRs() bool { return n.custom != nil && len(n.custom.Network.CIDRs) == 0 }

// hasGateway reports whether the dataplane has addresses on the network.
func (n network) hasGateway() bool { return !n.hasNoCIDRs() && !n.custom.Network.Gateway.None }

// isGuarded reports whether the dataplane drops packets that only routers and DHCP servers of the network send.
func (n network) isGuarded() bool { return n.custom != nil && n.custom.IsGuarded() }

// vrf returns the VRF of a routed network, and its families.
func (n network) vrf() (desired.VRF, []netaddr.Family) {
	if n.custom != nil {
		return n.custom.VRF, desired.FamiliesOf(n.custom.Network.CIDRs)
	}
	return desired.PodsVRF, n.node.Pools().Families()
}

// mtuLimits returns the lowest and the highest MTU of an interface with these addresses.
func (n network) mtuLimits(addresses []netip.Prefix) (least, most int) {
	families := append(n.node.FamiliesIn(n.name), desired.FamiliesOf(addresses)...)
	return desired.LeastMTU(families), n.node.MTUOf(n.custom)
}

// allocator returns the allocator of the network's addresses; nil if Weft does not allocate them.
func (n network) allocator() *ipam.Allocator { return n.node.Allocator(n.name) }

// pools lists the pools of the network.
func (n network) pools() []netaddr.Pool {
	if n.custom != nil {
		return n.custom.Pools()
	}
	return n.node.Pools().All
}

// poolOf returns the pool of a lease.
func (n network) poolOf(l ipam.Lease) netaddr.Pool {
	for _, p := range n.pools() {
		if p.Name == l.Pool {
			return p
		}
	}
	return netaddr.Pool{}
}

// gatewayOf returns the node's own address in the pool of a lease, or its first address for a lease outside all pools.
func (n network) gatewayOf(l ipam.Lease) netip.Addr {
	p := n.poolOf(l)
	switch {
	case !p.Prefix.IsValid():
		return n.node.NodeAddress(netaddr.FamilyOf(l.Address))
	case n.custom != nil:
		return p.Node()
	}
	return n.node.NodeIn(p)
}
