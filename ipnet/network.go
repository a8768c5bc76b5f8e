package ipnet

import (
	"context"
	"fmt"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/pod"
)

// Network connects the pods of one node. Its handlers belong to the event loop; Addresses and Objects may be called by
// anybody.
type Network struct {
	config    Config
	addresses *ipam.Allocator
	wired     map[pod.Key]*connection // the event loop's own
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
	return &Network{config: c, addresses: addresses, wired: make(map[pod.Key]*connection)}, nil
}

// Register adds the handlers to the loop, before it runs.
func (n *Network) Register(l *eventloop.Loop) {
	eventloop.On(l, "ipnet", n.ConnectPod)
	eventloop.On(l, "ipnet", n.DisconnectPod)
	l.OnResync("ipnet", n.Resync)
}

// Resync desires everything: what the node has, then each wired pod.
func (n *Network) Resync(_ context.Context, t *eventloop.Txn) error {
	n.nodeValues().put(t)
	for _, c := range n.inOrder() {
		if !c.displaced {
			podValues(c.Attachment).put(t)
		}
	}
	return nil
}

// Addresses gives the counts of each pool and the addresses that are not free.
func (n *Network) Addresses() ([]ipam.Stats, []ipam.Lease) {
	return n.addresses.Stats(), n.addresses.Leases()
}

// Objects are the keys of the values that wire an attachment.
func (n *Network) Objects(a *pod.Attachment) []string { return podValues(a).keys() }
