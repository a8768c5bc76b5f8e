package ipnet

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

func newConnection(a *pod.Attachment) *connection {
	own := *a
	own.Interfaces = slices.Clone(a.Interfaces)
	return &connection{Attachment: &own}
}

// inOrder lists the wired attachments by key, so that what they lead to is always the same.
func (n *Network) inOrder() []*connection {
	return slices.SortedFunc(maps.Values(n.wired), func(a, b *connection) int {
		return cmp.Compare(a.Key.String(), b.Key.String())
	})
}

// shared are those values of c that other attachments need too, as they are for these: the namespace, and what their memifs
// share with its own.
func (n *Network) shared(c *connection) values {
	var v values
	for _, other := range n.inOrder() {
		if other.Key == c.Key || other.displaced || other.Netns.Path != c.Netns.Path {
			continue
		}
		v.add(wire.NamespaceKey(c.Netns.Path), wire.Namespace(other.Netns))
		v = append(v, n.deviceValues(other.Attachment)...)
	}
	return v
}

// Saved is what an earlier run left.
type Saved struct {
	Attachments []*pod.Attachment
	Leases      []ipam.Lease
	Networks    []SavedNetwork
	Nodes       []SavedNode
	Externals   []pod.External
	Blocks      []SavedBlock
	Pools       *SavedPools // nil: those of the configuration
}

// Restore takes over what an earlier run left, before the first event; the start-up resync then makes it desired. It may
// be called again, with more.
// Attachments win over leases: an address that a pod has is that pod's, whatever else is kept about it. What cannot be
// restored is logged and left out, the rest is restored.
func (n *Network) Restore(s Saved) {
	n.restorePools(s.Pools)
	n.restoreBlocks(s.Blocks)
	n.restoreNetworks(s.Networks)
	n.restoreNodes(s.Nodes)
	n.restoreExternals(s.Externals)
	for _, a := range s.Attachments {
		n.wired[a.Key] = n.restored(a)
	}
	n.displaceOlder()
	n.restoreLeases(s)
}

func (n *Network) restoreNetworks(saved []SavedNetwork) {
	customs := maps.Clone(n.customNetworks())
	for _, s := range saved {
		c, err := n.newCustom(s)
		if err != nil {
			n.config.Log.Warn("network not restored", "network", s.Network.Name, "err", err)
			continue
		}
		customs[s.Network.Name] = c
	}
	n.customs.Store(&customs)
}

// restored is a connection with those interfaces whose networks are known.
func (n *Network) restored(a *pod.Attachment) *connection {
	c := newConnection(a)
	c.Interfaces = slices.DeleteFunc(c.Interfaces, func(i pod.Interface) bool {
		unknown := isCustom(i.Network) && n.custom(i.Network) == nil
		if unknown {
			n.config.Log.Warn("interface of an unknown network not restored", "attachment", a.Key.String(), "interface", i.Name, "network", i.Network)
		}
		return unknown
	})
	return c
}

// restoreLeases gives each network its leases back: first those of the attachments' addresses, then those that were kept
// and that no attachment stands behind.
func (n *Network) restoreLeases(s Saved) {
	since := make(map[string]time.Time) // of kept leases, by holder and address
	for _, l := range s.Leases {
		if l.State == ipam.Used {
			since[l.Holder+" "+l.Address.String()] = l.Since
		}
	}
	leases := make(map[string][]ipam.Lease) // by network
	for _, a := range s.Attachments {
		for _, i := range n.wired[a.Key].Interfaces {
			leases[i.Network] = append(leases[i.Network], n.leasesOf(a, i, since)...)
		}
	}
	for _, l := range n.orphans(s.Leases) {
		leases[networkOfPool(l.Pool)] = append(leases[networkOfPool(l.Pool)], l)
	}
	for _, network := range slices.Sorted(maps.Keys(leases)) {
		addresses := n.allocator(network)
		if addresses == nil {
			continue
		}
		if err := addresses.Restore(leases[network]); err != nil {
			n.config.Log.Warn("some leases not restored", "err", err)
		}
	}
}

// leasesOf are the leases of an interface's addresses, since the time that was kept, else since the attachment is. Those of
// no pool, or of no block of this node, are another plugin's.
func (n *Network) leasesOf(a *pod.Attachment, i pod.Interface, since map[string]time.Time) []ipam.Lease {
	var leases []ipam.Lease
	holder := holderOf(a.Key, i.Name)
	for at, p := range i.Addresses {
		if at < len(i.Pools) && i.Pools[at] == "" && !n.addresses.Gives(p.Addr()) {
			continue
		}
		l := ipam.Lease{Address: p.Addr(), Holder: holder, State: ipam.Used, Since: a.Created}
		if kept, ok := since[holder+" "+p.Addr().String()]; ok {
			l.Since = kept
		}
		leases = append(leases, l)
	}
	return leases
}

// orphans are the kept leases that no attachment stands behind. One that was used cools down first: somebody may still
// remember who had it.
func (n *Network) orphans(kept []ipam.Lease) []ipam.Lease {
	holders := make(map[string]bool)
	for key, c := range n.wired {
		for _, i := range c.Interfaces {
			holders[holderOf(key, i.Name)] = true
		}
	}
	var orphans []ipam.Lease
	for _, l := range kept {
		switch {
		case l.State == ipam.Cooling:
			orphans = append(orphans, l)
		case !holders[l.Holder]:
			orphans = append(orphans, n.addresses.Cooled(l))
		}
	}
	return orphans
}

// displaceOlder finds, of attachments whose namespaces stood at one path, those whose namespace is gone: all but the
// latest's.
func (n *Network) displaceOlder() {
	latest := make(map[string]*connection)
	for _, c := range n.inOrder() {
		if l := latest[c.Netns.Path]; l == nil || l.Created.Before(c.Created) {
			latest[c.Netns.Path] = c
		}
	}
	for _, c := range n.wired {
		c.displaced = latest[c.Netns.Path].Netns != c.Netns
	}
}

// interfaceOf is an interface of an attachment as it is recorded. Everything else about it follows from the record, the
// attachment's key and the network.
func (n *Network) interfaceOf(w wish, leases []ipam.Lease) pod.Interface {
	i := pod.Interface{Name: w.name, Type: w.kind, Network: w.network, Object: w.object, MAC: w.mac.String(), MTU: w.mtu, Memif: w.memif, Definition: w.definition}
	if w.memif == nil {
		i.RxQueues, i.TxQueues = w.rxQueues, w.txQueues
	}
	if w.custom != nil {
		i.AntiSpoof = w.custom.Network.AntiSpoof
	}
	for _, l := range leases {
		i.Pools = append(i.Pools, l.Pool)
		switch {
		case w.kind == pod.TypeIPAM || w.custom != nil && w.custom.Network.Type == pod.L2:
			onLink(&i, l.Address, n.poolOfLease(w, l))
		case w.defaults:
			asDefault(&i, l.Address)
		default:
			n.routed(&i, w, l)
		}
	}
	i.Addresses = append(i.Addresses, w.brought...)
	i.Pools = append(i.Pools, make([]string, len(w.brought))...)
	routedBeside(&i, w.routes)
	return i
}

// routedBeside adds the routes that another plugin gave. Weft's gateway stands in for theirs, which nobody is here; to a
// family of which the interface has no address there is no way.
func routedBeside(i *pod.Interface, routes []pod.Route) {
	for _, r := range routes {
		at := slices.IndexFunc(i.Gateways, func(g netip.Addr) bool { return g.Is4() == r.Destination.Addr().Is4() })
		isThere := func(o pod.Route) bool { return o.Destination == r.Destination }
		if at >= 0 && !slices.ContainsFunc(i.Routes, isThere) {
			i.Routes = append(i.Routes, pod.Route{Destination: r.Destination, Gateway: i.Gateways[at]})
		}
	}
}

// asDefault gives an interface an address by which its pod reaches everything.
func asDefault(i *pod.Interface, a netip.Addr) {
	family := wire.FamilyOf(a)
	gateway := gatewayOf(family)
	i.Addresses = append(i.Addresses, single(a))
	i.Gateways = append(i.Gateways, gateway)
	if family == wire.IP4 {
		i.Routes = append(i.Routes, pod.Route{Destination: single(gateway)})
	}
	i.Routes = append(i.Routes, pod.Route{Destination: defaultOf(family), Gateway: gateway})
}

// onLink gives an interface an address among the others of its pool, which are its neighbours.
func onLink(i *pod.Interface, a netip.Addr, p ipam.Pool) {
	i.Addresses = append(i.Addresses, netip.PrefixFrom(a, p.Prefix.Bits()))
	i.Gateways = append(i.Gateways, p.Node())
}

// routed gives an interface an address by which its pod reaches, if that leads anywhere, the network's others. The gateway
// of IPv4 is not the main interface's: a pod has one route to that.
func (n *Network) routed(i *pod.Interface, w wish, l ipam.Lease) {
	family := wire.FamilyOf(l.Address)
	gateway := gateway6
	switch {
	case family == wire.IP4 && w.kind == pod.TypeMemif && w.custom == nil:
		gateway = gateway4 // the kernel, which has one route to it, is not asked
	case family == wire.IP4:
		gateway = n.gatewayOfLease(w, l)
	}
	i.Addresses = append(i.Addresses, single(l.Address))
	i.Gateways = append(i.Gateways, gateway)
	if !w.leads {
		return
	}
	if family == wire.IP4 {
		i.Routes = append(i.Routes, pod.Route{Destination: single(gateway)})
	}
	for _, p := range n.poolsOf(w) {
		if wire.FamilyOf(p.Prefix.Addr()) == family {
			i.Routes = append(i.Routes, pod.Route{Destination: p.Prefix, Gateway: gateway})
		}
	}
}

func (n *Network) poolsOf(w wish) []ipam.Pool {
	if w.custom != nil {
		return w.custom.pools()
	}
	return n.pools.Load().all
}

// gatewayOfLease is the node's own address in the lease's pool; an address of no pool is routed by the node's first.
func (n *Network) gatewayOfLease(w wish, l ipam.Lease) netip.Addr {
	if p := n.poolOfLease(w, l); p.Prefix.IsValid() && w.custom != nil {
		return p.Node()
	} else if p.Prefix.IsValid() {
		return n.nodeIn(p)
	}
	return n.nodeAddress(wire.FamilyOf(l.Address))
}

// poolOfLease is the pool that a lease is from.
func (n *Network) poolOfLease(w wish, l ipam.Lease) ipam.Pool {
	for _, p := range n.poolsOf(w) {
		if p.Name == l.Pool {
			return p
		}
	}
	return ipam.Pool{}
}
