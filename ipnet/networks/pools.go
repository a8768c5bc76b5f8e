package networks

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/pod"
)

// SavedPools is the record of the pools of the network default.
type SavedPools struct {
	Pools          []netaddr.Pool      `json:"pools"`
	NamespacePools map[string][]string `json:"namespacePools,omitempty"`
	NodePools      []string            `json:"nodePools,omitempty"`
}

// PoolSet holds the pools of the network default, and which namespaces use which. It never changes: a new one replaces
// it.
type PoolSet struct {
	All         []netaddr.Pool
	ofNamespace map[string][]string // by namespace of Kubernetes, names
	ofNode      []string            // names
}

// SetPools replaces the pools of the node by those of the event, as far as their addresses allow it; Refused says why
// not. The blocks of a new pool are set after it.
func (r *registry) SetPools(ev *pod.SetPools, t *eventloop.Txn) {
	ev.Refused = make(map[string]string)
	t.Save(poolsBucket, poolsKey, r.setPools(ev))
}

// setPools replaces the pools, and returns their record.
func (r *registry) setPools(ev *pod.SetPools) SavedPools {
	var wanted []netaddr.Pool
	for _, p := range ev.Pools {
		if err := r.Config.possible(p, wanted); err != nil {
			ev.Refused[p.Name] = err.Error()
			continue
		}
		wanted = append(wanted, p)
	}
	for name, err := range r.addresses.SetPools(wanted) {
		ev.Refused[name] = err.Error()
	}
	set := &PoolSet{All: r.addresses.Pools(), ofNamespace: ev.NamespacePools, ofNode: ev.NodePools}
	r.pools.Store(set)
	saved := SavedPools{NamespacePools: set.ofNamespace, NodePools: set.ofNode}
	saved.Pools = append(saved.Pools, set.All...)
	return saved
}

// possible rejects a pool that is invalid on this node, or beside the others.
func (c Config) possible(p netaddr.Pool, others []netaddr.Pool) error {
	if err := p.Validate(); err != nil {
		return err
	}
	if slices.ContainsFunc(others, func(o netaddr.Pool) bool { return o.Name == p.Name }) {
		return errors.New("it is given twice")
	}
	if strings.Contains(p.Name, ":") {
		return fmt.Errorf("pool %s: a name without colons is needed", p.Name)
	}
	if least := desired.LeastMTU(desired.FamiliesOf([]netip.Prefix{p.Prefix})); c.MTU < least {
		return fmt.Errorf("the node's MTU %d is below %d, which its family needs", c.MTU, least)
	}
	return nil
}

// restorePools takes over the pools of an earlier run.
func (r *registry) restorePools(saved *SavedPools) {
	if saved == nil {
		return
	}
	ev := &pod.SetPools{
		Pools:          saved.Pools,
		NamespacePools: saved.NamespacePools,
		NodePools:      saved.NodePools,
		Refused:        make(map[string]string),
	}
	r.setPools(ev)
	for name, why := range ev.Refused {
		r.Config.Log.Warn("pool not restored", "pool", name, "err", why)
	}
}

// pool returns the pool of that name; nil if there is none.
func (p *PoolSet) pool(name string) *netaddr.Pool {
	for i := range p.All {
		if p.All[i].Name == name {
			return &p.All[i]
		}
	}
	return nil
}

// Families lists the families that have pools, IPv4 first.
func (p *PoolSet) Families() []netaddr.Family {
	var prefixes []netip.Prefix
	for _, pool := range p.All {
		prefixes = append(prefixes, pool.Prefix)
	}
	return desired.FamiliesOf(prefixes)
}

// choice is a list of pools with its source.
type choice struct {
	from  string
	names []string
}

// ForPod lists the names of the pools for the pod of an event. For each family the first choice counts that names a
// pool of the family: the pod, its namespace, the node, and all pools that are enabled and for all namespaces.
func (p *PoolSet) ForPod(request *pod.Request) ([]string, error) {
	asked, err := pod.ParsePools(request.Annotations)
	if err != nil {
		return nil, request.Failed(err)
	}
	if len(request.Requested.Pools) > 0 {
		return p.configuredPools(request)
	}
	choices := []choice{
		{"annotation " + pod.AnnotationPools, asked},
		{"namespace " + request.ID.Namespace, p.namesFor(request.ID.Namespace)},
		{"the node", p.ofNode},
		{"the configuration", p.unrestricted()},
	}
	names := []string{} // not nil, which lets the allocator choose
	for _, family := range p.Families() {
		for _, c := range choices {
			chosen, err := p.chosen(request, c, family)
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
		return nil, pod.Errorf(pod.CodeUnknownNetwork, "%s: no pool of the node is enabled for namespace %q", request,
			request.ID.Namespace)
	}
	return names, nil
}

// configuredPools lists the pools that the configuration of an IPAM plugin names. No other pool gives an address.
func (p *PoolSet) configuredPools(request *pod.Request) ([]string, error) {
	names := []string{}
	for _, family := range p.Families() {
		chosen, err := p.chosen(request, choice{"pool of the IPAM configuration", request.Requested.Pools}, family)
		if err != nil {
			return nil, err
		}
		names = append(names, chosen...)
	}
	for _, asked := range request.Requested.Addresses {
		if name := p.Of(asked.Addr()); !slices.Contains(names, name) {
			return nil, pod.Errorf(pod.CodeUnknownNetwork,
				"%s: address %s is not in the pools of the IPAM configuration, %v", request, asked.Addr(), names)
		}
	}
	return names, nil
}

// chosen lists the pools of a family in a choice. A choice that names a pool which the pod may not use is an error.
func (p *PoolSet) chosen(request *pod.Request, c choice, family netaddr.Family) ([]string, error) {
	var names []string
	for _, name := range c.names {
		pool := p.pool(name)
		if pool == nil {
			return nil, pod.Errorf(pod.CodeUnknownNetwork, "%s: %s: unknown pool %q; known pools: %v", request, c.from,
				name, p.unrestricted())
		}
		if err := p.Usable(request, c.from, pool.Node()); err != nil {
			return nil, err
		}
		if netaddr.FamilyOf(pool.Prefix.Addr()) == family {
			names = append(names, name)
		}
	}
	return names, nil
}

// Usable rejects an address whose pool does not serve the pod. An address outside all pools passes; the allocator
// rejects it with more detail.
func (p *PoolSet) Usable(request *pod.Request, from string, a netip.Addr) error {
	if pool := p.pool(p.Of(a)); pool != nil && pool.Disabled {
		return pod.Errorf(pod.CodeUnknownNetwork, "%s: %s: pool %s is disabled, or not for this node", request, from,
			pool.Name)
	}
	return p.Serves(request, from, a)
}

// Serves rejects an address whose pool is for other namespaces. The pool may be disabled.
func (p *PoolSet) Serves(request *pod.Request, from string, a netip.Addr) error {
	if pool := p.pool(p.Of(a)); pool != nil && !pool.Admits(request.ID.Namespace) {
		return pod.Errorf(pod.CodeUnknownNetwork, "%s: %s: pool %s is not for namespace %q", request, from, pool.Name,
			request.ID.Namespace)
	}
	return nil
}

// namesFor lists the pools that are configured for a namespace, then the pools that are restricted to some namespaces
// and admit it.
func (p *PoolSet) namesFor(namespace string) []string {
	names := slices.Clone(p.ofNamespace[namespace])
	for _, pool := range p.All {
		if len(pool.Namespaces) > 0 && !pool.Disabled && pool.Admits(namespace) && !slices.Contains(names, pool.Name) {
			names = append(names, pool.Name)
		}
	}
	return names
}

// unrestricted lists the pools that are enabled and for all namespaces.
func (p *PoolSet) unrestricted() []string {
	var names []string
	for _, pool := range p.All {
		if !pool.Disabled && len(pool.Namespaces) == 0 {
			names = append(names, pool.Name)
		}
	}
	return names
}

// Of returns the name of the pool that contains an address; "" if no pool does.
func (p *PoolSet) Of(a netip.Addr) string {
	for _, pool := range p.All {
		if pool.Prefix.Contains(a) {
			return pool.Name
		}
	}
	return ""
}

// NodeAddress returns the node's own address of a family: from the first pool that only this node has, else from a
// block; not valid if there is none.
func (r *registry) NodeAddress(f netaddr.Family) netip.Addr {
	for _, p := range r.pools.Load().All {
		if !p.Blocks && netaddr.FamilyOf(p.Prefix.Addr()) == f {
			return p.Node()
		}
	}
	return (*r.own.Load())[f]
}

// NodeIn returns the node's own address for its route to a pool; not valid if there is none yet.
func (r *registry) NodeIn(p netaddr.Pool) netip.Addr {
	if p.Blocks {
		return r.NodeAddress(netaddr.FamilyOf(p.Prefix.Addr()))
	}
	return p.Node()
}
