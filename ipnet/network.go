package ipnet

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// Network connects the pods of one node. Its handlers belong to the event loop; Addresses, Networks and Objects may be
// called by anybody.
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
	withheld []ipam.Lease                               // addresses of interfaces that nobody knows

	refused      atomic.Pointer[map[string]string] // by network, why it is missing or not as the cluster specifies it; the map never changes
	withheldPods atomic.Pointer[map[pod.Key]bool]  // attachments whose objects in the dataplane are not desired; the map never changes
}

// connection is a wired attachment.
type connection struct {
	*pod.Attachment      // a copy that nobody else has
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
