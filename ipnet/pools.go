package ipnet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// SavedPools is what is kept of the pools of the network default, if they were set.
type SavedPools struct {
	Pools          []pod.Pool          `json:"pools"`
	NamespacePools map[string][]string `json:"namespacePools,omitempty"`
	NodePools      []string            `json:"nodePools,omitempty"`
}

// pools are those of the network default, and who chooses which. They never change: others take their place.
type pools struct {
	all         []ipam.Pool
	ofNamespace map[string][]string // by namespace of Kubernetes, names
	ofNode      []string            // names
}

// ChangePools makes the pools of the event those of the node, as far as their addresses allow it; Refused says why not.
// Blocks of a pool that is new are to be set after it.
func (n *Network) ChangePools(_ context.Context, ev *pod.SetPools, t *eventloop.Txn) error {
	ev.Refused = make(map[string]string)
	was := n.everything()
	saved := n.setPools(ev)
	t.Save(poolsBucket, poolsKey, saved)
	replace(t, was, n.everything())
	return nil
}

// setPools takes over the pools of an event, and gives what is to be kept of them.
func (n *Network) setPools(ev *pod.SetPools) SavedPools {
	var wanted []ipam.Pool
	for _, p := range ev.Pools {
		if err := n.config.possible(p, wanted); err != nil {
			ev.Refused[p.Name] = err.Error()
			continue
		}
		wanted = append(wanted, ipam.Pool{Name: p.Name, Prefix: p.Prefix, Disabled: p.Disabled, Namespaces: p.Namespaces, Blocks: p.Blocks})
	}
	for name, err := range n.addresses.SetPools(wanted) {
		ev.Refused[name] = err.Error()
	}
	set := &pools{all: n.addresses.Pools(), ofNamespace: ev.NamespacePools, ofNode: ev.NodePools}
	n.pools.Store(set)
	saved := SavedPools{NamespacePools: set.ofNamespace, NodePools: set.ofNode}
	for _, p := range set.all {
		saved.Pools = append(saved.Pools, pod.Pool{Name: p.Name, Prefix: p.Prefix, Disabled: p.Disabled, Namespaces: p.Namespaces, Blocks: p.Blocks})
	}
	return saved
}

// possible refuses a pool that this node cannot have beside others.
func (c Config) possible(p pod.Pool, others []ipam.Pool) error {
	pool := ipam.Pool{Name: p.Name, Prefix: p.Prefix}
	if err := pool.Validate(); err != nil {
		return err
	}
	if slices.ContainsFunc(others, func(o ipam.Pool) bool { return o.Name == p.Name }) {
		return errors.New("it is there twice")
	}
	if strings.Contains(p.Name, ":") {
		return fmt.Errorf("pool %s: a name without colons is needed", p.Name)
	}
	if least := leastMTU(familiesOf([]netip.Prefix{p.Prefix})); c.MTU < least {
		return fmt.Errorf("the node's MTU %d is below %d, which its family needs", c.MTU, least)
	}
	return nil
}

// restorePools takes over the pools of an earlier run.
func (n *Network) restorePools(saved *SavedPools) {
	if saved == nil {
		return
	}
	ev := &pod.SetPools{Pools: saved.Pools, NamespacePools: saved.NamespacePools, NodePools: saved.NodePools, Refused: make(map[string]string)}
	n.setPools(ev)
	for name, why := range ev.Refused {
		n.config.Log.Warn("pool not restored", "pool", name, "err", why)
	}
}

// pool is the pool of that name; nil if there is none.
func (p *pools) pool(name string) *ipam.Pool {
	for i := range p.all {
		if p.all[i].Name == name {
			return &p.all[i]
		}
	}
	return nil
}

// families are those that have pools, IPv4 first.
func (p *pools) families() []wire.Family {
	var prefixes []netip.Prefix
	for _, pool := range p.all {
		prefixes = append(prefixes, pool.Prefix)
	}
	return familiesOf(prefixes)
}

// choice is a list of pools, and who says so.
type choice struct {
	from  string
	names []string
}

// poolsFor are the names of the node's pools for an event's pod. For each family the first of these that names a pool of it
// counts: the pod, its namespace, the node, and all pools that are enabled and for all namespaces.
func (n *Network) poolsFor(ev *pod.AddPod) ([]string, error) {
	asked, err := pod.PoolsAsked(ev.Annotations)
	if err != nil {
		return nil, about(ev, err)
	}
	if len(ev.Requested.Pools) > 0 {
		return n.configuredPools(ev)
	}
	choices := []choice{
		{"annotation " + pod.AnnotationPools, asked},
		{"namespace " + ev.ID.Namespace, n.ofNamespace(ev.ID.Namespace)},
		{"the node", n.pools.Load().ofNode},
		{"the configuration", n.ofEverybody()},
	}
	names := []string{} // not nil: an allocator would choose
	for _, family := range n.pools.Load().families() {
		for _, c := range choices {
			chosen, err := n.chosen(ev, c, family)
			if err != nil {
				return nil, err
			}
			if len(chosen) > 0 {
				names = append(names, chosen...)
				break
			}
		}
	}
	if len(names) == 0 {
		return nil, pod.Errorf(pod.CodeUnknownNetwork, "%s: no pool of the node is enabled for namespace %q", ev, ev.ID.Namespace)
	}
	return names, nil
}

// configuredPools are those of the configuration of an IPAM plugin. No address of another pool is given.
func (n *Network) configuredPools(ev *pod.AddPod) ([]string, error) {
	names := []string{}
	for _, family := range n.pools.Load().families() {
		chosen, err := n.chosen(ev, choice{"pool of the IPAM configuration", ev.Requested.Pools}, family)
		if err != nil {
			return nil, err
		}
		names = append(names, chosen...)
	}
	for _, p := range ev.Requested.Addresses {
		if name := n.poolOf(p.Addr()); !slices.Contains(names, name) {
			return nil, pod.Errorf(pod.CodeUnknownNetwork, "%s: address %s is not in the pools of the IPAM configuration, %v", ev, p.Addr(), names)
		}
	}
	return names, nil
}

// chosen are the pools of a family in a choice, which names only pools that the pod may use.
func (n *Network) chosen(ev *pod.AddPod, c choice, family wire.Family) ([]string, error) {
	var names []string
	for _, name := range c.names {
		p := n.pools.Load().pool(name)
		if p == nil {
			return nil, pod.Errorf(pod.CodeUnknownNetwork, "%s: %s: there is no pool %q; there are %v", ev, c.from, name, n.ofEverybody())
		}
		if err := n.usable(ev, c.from, p.Node()); err != nil {
			return nil, err
		}
		if wire.FamilyOf(p.Prefix.Addr()) == family {
			names = append(names, name)
		}
	}
	return names, nil
}

// usable refuses an address whose pool gives the pod none. One of no pool passes: others say more about it.
func (n *Network) usable(ev *pod.AddPod, from string, a netip.Addr) error {
	p := n.pools.Load().pool(n.poolOf(a))
	switch {
	case p == nil:
		return nil
	case p.Disabled:
		return pod.Errorf(pod.CodeUnknownNetwork, "%s: %s: pool %s is disabled, or not for this node", ev, from, p.Name)
	case !p.Admits(ev.ID.Namespace):
		return pod.Errorf(pod.CodeUnknownNetwork, "%s: %s: pool %s is not for namespace %q", ev, from, p.Name, ev.ID.Namespace)
	}
	return nil
}

// ofNamespace are the pools that are configured for a namespace, then those that are for it and some others only.
func (n *Network) ofNamespace(namespace string) []string {
	names := slices.Clone(n.pools.Load().ofNamespace[namespace])
	for _, p := range n.pools.Load().all {
		if len(p.Namespaces) > 0 && !p.Disabled && p.Admits(namespace) && !slices.Contains(names, p.Name) {
			names = append(names, p.Name)
		}
	}
	return names
}

// ofEverybody are the pools that are enabled and for all namespaces.
func (n *Network) ofEverybody() []string {
	var names []string
	for _, p := range n.pools.Load().all {
		if !p.Disabled && len(p.Namespaces) == 0 {
			names = append(names, p.Name)
		}
	}
	return names
}

// poolOf is the name of the node's pool that an address is in; "" for none.
func (n *Network) poolOf(a netip.Addr) string {
	for _, p := range n.pools.Load().all {
		if p.Prefix.Contains(a) {
			return p.Name
		}
	}
	return ""
}

// claims are the blocks of a network and whose they are. A single address inside a block is not in its way: one node lends
// it to another.
type claims struct {
	lengths map[int]bool            // of all prefixes that will come
	taken   map[netip.Prefix]string // the node of each
	around  map[netip.Prefix]string // prefixes with a taken one inside, and its node
}

func newClaims() *claims {
	return &claims{lengths: make(map[int]bool), taken: make(map[netip.Prefix]string), around: make(map[netip.Prefix]string)}
}

func (c *claims) take(block netip.Prefix, node string) {
	c.taken[block] = node
	if block.IsSingleIP() {
		return
	}
	for p := range c.outer(block) {
		c.around[p] = node
	}
}

// holder is a node with a block in whose way another one is; "" if there is none.
func (c *claims) holder(block netip.Prefix) string {
	if node := c.taken[block]; node != "" {
		return node
	}
	if block.IsSingleIP() {
		return ""
	}
	for p := range c.outer(block) {
		if node := c.taken[p]; node != "" {
			return node
		}
	}
	return c.around[block]
}

// outer are the prefixes of shorter lengths that a block is in.
func (c *claims) outer(block netip.Prefix) func(yield func(netip.Prefix) bool) {
	return func(yield func(netip.Prefix) bool) {
		for length := range c.lengths {
			if length < 0 || length >= block.Bits() {
				continue
			}
			p, _ := block.Addr().Prefix(length)
			if !yield(p) {
				return
			}
		}
	}
}
