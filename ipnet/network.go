// Package ipnet turns what connects a pod into desired values of the machine.
//
//	         pod's namespace          |           dataplane, VRF weft:pods            |        node
//	                                  |                                               |
//	eth0 10.1.0.5/32 <------ tap ------> weft-<hash>-eth0        weft-host <---- tap ----> weft0 10.1.0.1/32
//	default via 169.254.1.1           |  unnumbered: weft-gateway 169.254.1.1/32      |    10.1.0.0/24 via 169.254.1.1
//	default via fe80::1               |  fe80::1 on each; 10.1.0.5/32 -> its tap      |
//
// Extra interfaces, tap or veth, are on the same VRF, on nothing, or on a custom network:
//
//	x1 10.5.0.2/32 <-- L3 blue ------> weft-<hash>-x1 in VRF weft:blue, unnumbered: weft-gw-blue 10.5.0.1/32
//	10.5.0.0/24 via 10.5.0.1          |
//	x2 10.6.0.2/24 <-- L2 red -------> weft-<hash>-x2 in bridge domain weft:red, BVI: weft-gw-red 10.6.0.1/24
//
// Pods of other nodes are reached, on the network default and on custom networks whose VNI was chosen, by a tunnel to each node.
// A routed network enters them by a loopback, and all there is static; a bridged one has them as members:
//
//	VRF weft:pods -- weft-bvi-default -- bridge domain weft:vxlan:default -- weft-vx-default-2 <== VXLAN ==> node 2
//	   10.1.2.0/26 via its address            its MAC: by its tunnel      \- weft-vx-default-3 <== VXLAN ==> node 3
//
// All neighbours that are routed to are static: no packet waits for ARP or ND. Everything here is pure: handlers make values and keep
// which attachments are wired; others bring the machine there.
package ipnet

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"sync/atomic"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// Network connects the pods of one node. Its handlers belong to the event loop; Addresses, Networks and Objects may be
// called from any goroutine.
type Network struct {
	config    Config
	addresses *ipam.Allocator                    // of the network default
	customs   atomic.Pointer[map[string]*custom] // by name; the map never changes: another one takes its place
	wired     map[pod.Key]*connection            // the event loop's own
	mesh      *mesh                              // the event loop's own
	blocks    map[string]SavedBlock              // by name; the event loop's own

	linkTypes atomic.Pointer[LinkTypes]
	externals atomic.Pointer[map[string]pod.External] // to the outside, by name; the map never changes

	pools    atomic.Pointer[pools]                      // of the network default
	own      atomic.Pointer[map[wire.Family]netip.Addr] // the node's, where no pool is the node's as a whole; the map never changes
	withheld []ipam.Lease                               // addresses of interfaces without a known attachment

	refused      atomic.Pointer[map[string]string] // by network, why it is missing or not as the cluster specifies it; the map never changes
	withheldPods atomic.Pointer[map[pod.Key]bool]  // attachments whose objects in the dataplane are not desired; the map never changes
}

// connection is a wired attachment.
type connection struct {
	*pod.Attachment      // a private copy
	displaced       bool // its namespace is gone and another stands at its path: none of its values are desired
}

// New makes a network without pods. Each pool's node address is the node's from now on.
func New(c Config) (*Network, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	addresses, err := ipam.New(ipam.Config{Pools: c.Pools, CoolDown: c.CoolDown, Now: c.Now})
	if err != nil {
		return nil, fmt.Errorf("addresses: %w", err)
	}
	n := &Network{config: c, addresses: addresses, wired: make(map[pod.Key]*connection), mesh: &mesh{}, blocks: make(map[string]SavedBlock)}
	n.customs.Store(&map[string]*custom{})
	n.externals.Store(&map[string]pod.External{})
	n.linkTypes.Store(&c.LinkTypes)
	n.pools.Store(c.pools())
	n.own.Store(&map[wire.Family]netip.Addr{})
	n.SetWithheld(nil)
	n.refused.Store(new(map[string]string))
	return n, nil
}

// Register adds the handlers to the loop, before it runs.
func (n *Network) Register(l *eventloop.Loop) {
	eventloop.On(l, "ipnet", n.ConnectPod)
	eventloop.On(l, "ipnet", n.AddressPod)
	eventloop.On(l, "ipnet", n.DisconnectPod)
	eventloop.On(l, "ipnet", n.WithholdPods)
	eventloop.On(l, "ipnet", n.ChangeNetworks)
	eventloop.On(l, "ipnet", n.ChangeNodes)
	eventloop.On(l, "ipnet", n.ChangeExternals)
	eventloop.On(l, "ipnet", n.ChangePools)
	eventloop.On(l, "ipnet", n.ChangeBlocks)
	l.OnResync("ipnet", n.Resync)
}

// Resync desires everything.
func (n *Network) Resync(_ context.Context, t *eventloop.Txn) error {
	n.everything().put(t)
	return nil
}

// everything is what the node has, then each custom network, the mesh, the interfaces to the outside, and each wired pod.
func (n *Network) everything() values {
	v := n.nodeValues()
	customs := n.customNetworks()
	for _, name := range slices.Sorted(maps.Keys(customs)) {
		v = append(v, customs[name].values(n.mtuOf(customs[name]))...)
	}
	v = append(v, n.meshValues()...)
	for _, e := range n.Externals() {
		v = append(v, n.externalValues(e)...)
	}
	for _, c := range n.inOrder() {
		if !c.displaced {
			v = append(v, n.podValues(c.Attachment)...)
		}
	}
	return v
}

// Addresses gives the counts of each pool and the addresses that are not free: the node's, then each custom network's.
func (n *Network) Addresses() ([]ipam.Stats, []ipam.Lease) {
	stats, leases := n.addresses.Stats(), n.addresses.Leases()
	for _, s := range n.Networks() {
		if addresses := n.allocator(s.Network.Name); addresses != nil {
			stats, leases = append(stats, addresses.Stats()...), append(leases, addresses.Leases()...)
		}
	}
	return stats, leases
}

// Networks lists the custom networks with their numbers, by name.
func (n *Network) Networks() []SavedNetwork {
	customs := n.customNetworks()
	var networks []SavedNetwork
	for _, name := range slices.Sorted(maps.Keys(customs)) {
		networks = append(networks, customs[name].SavedNetwork)
	}
	return networks
}

// Objects are the keys of the values that wire an attachment, withheld or not.
func (n *Network) Objects(a *pod.Attachment) []string { return n.allValues(a).keys() }

// isCustom tells custom networks from those that always exist.
func isCustom(network string) bool {
	return network != "" && network != pod.DefaultNetwork && network != pod.StubNetwork
}

// networkOf is a network's name as interfaces have it.
func networkOf(network string) string {
	if network == pod.DefaultNetwork {
		return ""
	}
	return network
}

func (n *Network) customNetworks() map[string]*custom { return *n.customs.Load() }

// custom is the custom network of that name; nil if there is none.
func (n *Network) custom(network string) *custom { return n.customNetworks()[network] }

// IsClosed reports whether no pod can be added to a network, because it is closed or missing.
func (n *Network) IsClosed(network string) bool {
	c := n.custom(network)
	return c == nil || c.Network.Closed
}

// allocator gives out the addresses of a network; nil if it has none.
func (n *Network) allocator(network string) *ipam.Allocator {
	if network == "" {
		return n.addresses
	}
	if c := n.custom(network); c != nil {
		return c.addresses
	}
	return nil
}

// values are desired values under their keys, in the order in which people read them.
type values []eventloop.Setting

func (v *values) add(key string, value any) {
	*v = append(*v, eventloop.Setting{Key: key, Value: value})
}

func (v values) put(t *eventloop.Txn) {
	for _, s := range v {
		t.Put(s.Key, s.Value)
	}
}

func (v values) keys() []string {
	keys := make([]string, len(v))
	for i, s := range v {
		keys[i] = s.Key
	}
	return keys
}

// single is the prefix that holds nothing but a.
func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// replace asks for what is another than it was: what is gone, and what is new or has another value.
func replace(t *eventloop.Txn, was, is values) {
	before := make(map[string]any, len(was))
	for _, s := range was {
		before[s.Key] = s.Value
	}
	after := make(map[string]bool, len(is))
	for _, s := range is {
		after[s.Key] = true
	}
	for _, s := range was {
		if !after[s.Key] {
			t.Delete(s.Key)
		}
	}
	for _, s := range is {
		if !reflect.DeepEqual(before[s.Key], s.Value) {
			t.Put(s.Key, s.Value)
		}
	}
}

// IDs is a range of numbers of the dataplane, both ends included.
type IDs struct{ First, Last uint32 }

// lowest is the lowest number that is not taken; what says of what.
func (r IDs) lowest(what string, taken map[uint32]bool) (uint32, error) {
	for id := uint64(r.First); id <= uint64(r.Last); id++ {
		if !taken[uint32(id)] {
			return uint32(id), nil
		}
	}
	return 0, fmt.Errorf("no %s from %d to %d is free: remove a network", what, r.First, r.Last)
}
