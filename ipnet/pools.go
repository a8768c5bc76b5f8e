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
