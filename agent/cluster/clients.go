package cluster

import (
	"cmp"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"sort"
	"strings"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/k8s/policies"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/policy"
)

// clients is the map of client addresses, with its inputs.
type clients struct {
	known bool // the others are set
	self  pod.Node
	nodes []pod.Node
	pools []netaddr.Pool
	now   policy.ClientMap
	told  []string        // the reasons for families and nodes without client addresses, as logged
	apart map[string]bool // names of nodes that are left out
}

// clientRanges returns the ranges of client addresses that this node uses, and tells the policies of the addresses in
// them; none if policies are not enforced. Pods of all nodes have addresses of the pools, of this node's blocks or of
// other nodes' blocks.
func (f *Follower) clientRanges(self pod.Node, nodes []pod.Node, now *followed) []netip.Prefix {
	if f.Enforced == nil {
		return nil
	}
	is := clients{known: true, self: self, nodes: nodes, told: now.clients.told}
	if now.pools != nil {
		is.pools = now.pools.Pools
	}
	if was := &now.clients; was.known && reflect.DeepEqual(was.self, is.self) &&
		reflect.DeepEqual(was.nodes, is.nodes) &&
		reflect.DeepEqual(was.pools, is.pools) {
		return was.now.Ranges().Prefixes()
	}
	ranges, err := policy.NewClientRanges(f.Config.Kubernetes.ServiceClientRanges)
	if err != nil { // the configuration is valid
		f.Log.Error("no client addresses", "err", err)
	}
	why := is.resolve(ranges)
	if len(why) > 0 && !slices.Equal(why, is.told) {
		f.Log.Warn("endpoints of Services see pods with the address of their node", "reasons", why)
	}
	is.told = why
	now.clients = is
	f.Enforced.SetClients(is.now, why)
	return is.now.Ranges().Prefixes()
}

// tellNetworks tells the policies which addresses pods of all nodes can have. It is called before clientRanges: rules
// wait for that.
func (f *Follower) tellNetworks(self pod.Node, nodes []pod.Node, now *followed) {
	if f.Enforced == nil {
		return
	}
	known := policies.Networks{
		Blocks:      make(map[string][]pod.NodePart),
		CIDRs:       make(map[string]bool),
		Definitions: now.definitions.update(now.view.Definitions),
	}
	for _, n := range append([]pod.Node{self}, nodes...) {
		known.Blocks[n.Name] = n.Parts
	}
	for _, n := range slices.Concat(now.view.Networks, f.Networks.Configured()) {
		known.CIDRs[n.Name] = len(n.CIDRs) > 0
	}
	f.Enforced.SetNetworks(known)
}

// resolve makes the map. A node with addresses or blocks that would make the client addresses of other nodes ambiguous
// is left out, alone: the reports of its kubelet or agent must not harm other nodes. If this node or several others are
// concerned, the ranges are wrong, and a family has no client addresses. It returns the reasons for families and nodes
// without client addresses.
func (c *clients) resolve(ranges policy.ClientRanges) []string {
	c.apart = make(map[string]bool)
	others := slices.Clone(c.nodes)
	// the order in which they joined
	slices.SortFunc(others, func(a, b pod.Node) int { return cmp.Compare(a.ID, b.ID) })
	reasons := c.leaveOutByBlocks(ranges, others)
	var why []string
	c.now, why = policy.NewClientMap(ranges, c.rangesOfPods(c.without(others)), c.self.Addresses)
	conflicts := c.addressesWithin(others)
	switch {
	case len(why) > 0 || len(conflicts) > 1:
		c.apart = make(map[string]bool)
		c.now, why = policy.NewClientMap(ranges, c.rangesOfPods(others), c.addressesOfNodes())
		return why
	case len(conflicts) == 1:
		for name, a := range conflicts {
			c.apart[name] = true
			reasons = append(reasons,
				fmt.Sprintf("node %s is left out: its address %s is the client address of a pod", name, a))
		}
	}
	return reasons
}

// leaveOutByBlocks leaves out the newest node that has blocks in conflict with the blocks of earlier nodes.
func (c *clients) leaveOutByBlocks(ranges policy.ClientRanges, others []pod.Node) []string {
	conflict := func(n int) []string {
		_, why := policy.NewClientMap(ranges, c.rangesOfPods(others[:n]), nil)
		return why
	}
	if len(conflict(len(others))) == 0 || len(conflict(0)) > 0 {
		return nil
	}
	last := sort.Search(len(others), func(n int) bool { return len(conflict(n)) > 0 })
	node := others[last-1]
	c.apart[node.Name] = true
	return []string{fmt.Sprintf("node %s is left out: %s", node.Name, strings.Join(conflict(last), "; "))}
}

// addressesWithin returns the nodes with an address that is a client address, and one such address of each.
func (c *clients) addressesWithin(nodes []pod.Node) map[string]netip.Addr {
	found := make(map[string]netip.Addr)
	for _, n := range nodes {
		for _, a := range n.Addresses {
			if _, isClient := c.now.PodOf(a); isClient {
				found[n.Name] = a
			}
		}
	}
	return found
}

// without returns the nodes that are not left out.
func (c *clients) without(nodes []pod.Node) []pod.Node {
	return slices.DeleteFunc(slices.Clone(nodes), func(n pod.Node) bool { return c.apart[n.Name] })
}

// partners returns the nodes such that this one uses client addresses with those only that are not left out.
func (c *clients) partners(nodes []pod.Node) []pod.Node {
	if len(c.apart) == 0 {
		return nodes
	}
	list := slices.Clone(nodes)
	for n := range list {
		if c.apart[list[n].Name] {
			list[n].ClientRanges = nil
		}
	}
	return list
}

// rangesOfPods lists the ranges of addresses of pods, of this node and others.
func (c *clients) rangesOfPods(others []pod.Node) (list []netip.Prefix) {
	for _, p := range c.pools {
		list = append(list, p.Prefix)
	}
	for _, n := range append([]pod.Node{c.self}, others...) {
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
