package ipnet

import (
	"net/netip"
	"slices"

	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

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
