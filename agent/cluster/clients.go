package cluster

import (
	"net/netip"
	"reflect"
	"slices"

	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/policy"
)

// clients is the map of client addresses, with what it was made from.
type clients struct {
	known bool // the others are set
	self  pod.Node
	nodes []pod.Node
	pools []pod.Pool
	now   policy.ClientMap
	told  []string // why a family has none, as logged
}

// clientRanges returns the ranges of client addresses that this node uses, and tells the policies of the addresses in them; none if policies
// are not enforced. Pods of all nodes have addresses of the pools, of this node's blocks or of other nodes' blocks.
func (f *Follower) clientRanges(self pod.Node, nodes []pod.Node, now *followed) []netip.Prefix {
	if f.Enforced == nil {
		return nil
	}
	is := clients{known: true, self: self, nodes: nodes, told: now.clients.told}
	if now.pools != nil {
		is.pools = now.pools.Pools
	}
	if was := &now.clients; was.known && reflect.DeepEqual(was.self, is.self) && reflect.DeepEqual(was.nodes, is.nodes) && reflect.DeepEqual(was.pools, is.pools) {
		return was.now.Ranges().Prefixes()
	}
	ranges, err := policy.NewClientRanges(f.Config.Kubernetes.ServiceClientRanges)
	if err != nil { // the configuration is valid
		f.Log.Error("no client addresses", "err", err)
	}
	var why []string
	is.now, why = policy.NewClientMap(ranges, is.rangesOfPods(), is.addressesOfNodes())
	if len(why) > 0 && !slices.Equal(why, is.told) {
		f.Log.Warn("endpoints of Services see pods with the address of their node", "reasons", why)
	}
	is.told = why
	now.clients = is
	f.Enforced.SetClients(is.now, why)
	return is.now.Ranges().Prefixes()
}

func (c *clients) rangesOfPods() (list []netip.Prefix) {
	for _, p := range c.pools {
		list = append(list, p.Prefix)
	}
	for _, n := range append([]pod.Node{c.self}, c.nodes...) {
		for _, part := range n.Parts {
			if part.Network == pod.DefaultNetwork {
				list = append(list, part.Blocks...)
			}
		}
	}
	return list
}

func (c *clients) addressesOfNodes() (list []netip.Addr) {
	for _, n := range append([]pod.Node{c.self}, c.nodes...) {
		list = append(list, n.Addresses...)
	}
	return list
}
