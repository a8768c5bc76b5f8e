package ipnet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/pod"
)

// Network connects the pods of one node. Its handlers belong to the event loop; Addresses, Networks and Objects may be
// called by anybody.
type Network struct {
	config    Config
	addresses *ipam.Allocator                    // of the network default
	customs   atomic.Pointer[map[string]*custom] // by name; the map never changes: another one takes its place
	wired     map[pod.Key]*connection            // the event loop's own
	withheld  []ipam.Lease                       // addresses of interfaces that nobody knows
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
	n := &Network{config: c, addresses: addresses, wired: make(map[pod.Key]*connection)}
	n.customs.Store(&map[string]*custom{})
	return n, nil
}

// Register adds the handlers to the loop, before it runs.
func (n *Network) Register(l *eventloop.Loop) {
	eventloop.On(l, "ipnet", n.ConnectPod)
	eventloop.On(l, "ipnet", n.DisconnectPod)
	eventloop.On(l, "ipnet", n.ChangeNetworks)
	l.OnResync("ipnet", n.Resync)
}

// Resync desires everything: what the node has, then each custom network, then each wired pod.
func (n *Network) Resync(_ context.Context, t *eventloop.Txn) error {
	n.nodeValues().put(t)
	customs := n.customNetworks()
	for _, name := range slices.Sorted(maps.Keys(customs)) {
		customs[name].values(n.mtuOf(customs[name])).put(t)
	}
	for _, c := range n.inOrder() {
		if !c.displaced {
			n.podValues(c.Attachment).put(t)
		}
	}
	return nil
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

// Objects are the keys of the values that wire an attachment.
func (n *Network) Objects(a *pod.Attachment) []string { return n.podValues(a).keys() }

// isCustom tells custom networks from those that always exist.
func isCustom(network string) bool {
	return network != "" && network != pod.DefaultNetwork && network != pod.StubNetwork
}

func (n *Network) customNetworks() map[string]*custom { return *n.customs.Load() }

// custom is the custom network of that name; nil if there is none.
func (n *Network) custom(network string) *custom { return n.customNetworks()[network] }

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
