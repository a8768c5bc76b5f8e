package ipnet

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// ChangeExternals makes the interfaces of the event those that connect networks with the outside. One that cannot be is
// left out, and Refused says why; of those that exclude each other the one stays that was there before, or has the lower
// name.
func (n *Network) ChangeExternals(_ context.Context, ev *pod.SetExternals, t *eventloop.Txn) error {
	ev.Refused = make(map[string]string)
	n.joinOutside(n.judgeExternals(ev.Externals, ev.Refused), n.outsideValues(), t)
	return nil
}

// joinOutside makes other interfaces those that are connected; was is what there was of those before.
func (n *Network) joinOutside(after map[string]pod.External, was values, t *eventloop.Txn) {
	before := *n.externals.Load()
	n.externals.Store(&after)
	t.OnRollback(func() error { n.externals.Store(&before); return nil })
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, stays := after[name]; !stays {
			t.Save(externalsBucket, name, nil)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if !reflect.DeepEqual(before[name], after[name]) {
			t.Save(externalsBucket, name, after[name])
		}
	}
	replace(t, was, n.outsideValues())
}

// outsideValues are what there is for the sake of the outside: the interfaces, and the routes of pods that lead there.
func (n *Network) outsideValues() values {
	var v values
	for _, e := range n.Externals() {
		v = append(v, n.externalValues(e)...)
	}
	for _, c := range n.inOrder() {
		if !c.displaced {
			v = append(v, n.routesOutside(c.Attachment)...)
		}
	}
	return v
}

// Externals are the interfaces to the outside that are connected, by name. Safe for concurrent use.
func (n *Network) Externals() []pod.External {
	all := *n.externals.Load()
	var externals []pod.External
	for _, name := range slices.Sorted(maps.Keys(all)) {
		externals = append(externals, all[name])
	}
	return externals
}

// ExternalObjects are the keys of the values that connect an interface; none for one that is not connected. Safe for concurrent use.
func (n *Network) ExternalObjects(name string) []string {
	e, connected := (*n.externals.Load())[name]
	if !connected {
		return nil
	}
	return n.externalValues(e).keys()
}

// externalValues connect an interface; nothing if its network is not known.
func (n *Network) externalValues(e pod.External) values {
	c := n.custom(networkOf(e.Network))
	if c == nil && isCustom(e.Network) {
		return nil
	}
	var v values
	object, link, on := externalOf(e.Name), e.Interface, wire.LinkKey(e.Interface)
	v.add(on, wire.Link{Name: e.Interface, Up: true, Unmerged: n.config.MaxSegment != 0})
	if e.VLAN != 0 {
		link, on = hostName(object), wire.VLANKey(object)
		v.add(on, wire.VLAN{Parent: e.Interface, ID: e.VLAN, Name: link, Alias: externalAlias(e.Name), Up: true})
	}
	mtu, in := n.config.MTU, podsVRF
	if c != nil {
		mtu, in = n.mtuOf(c), c.vrf
	}
	v.add(wire.InterfaceKey(object), wire.Interface{
		Type: wire.TypeAFPacket, MAC: macOf(object+"@"+e.Node, dataplaneEnd), MTU: mtu, Up: true, AFPacket: wire.AFPacket{Link: link, On: on},
	})
	if c != nil && c.Network.Type == pod.L2 {
		v.add(wire.BridgeMemberKey(object), wire.BridgeMember{BridgeDomain: c.label, Interface: object})
		return v
	}
	for _, f := range familiesOf(e.Addresses) {
		v.add(wire.InterfaceVRFKey(object, f), in.membership(object, f, false))
	}
	for _, p := range e.Addresses {
		v.add(wire.AddressKey(object, p), wire.Address{Interface: object, Prefix: p})
	}
	return v
}

// routesOutside lead a pod to what is behind the interfaces of its routed networks, but where another route of its leads
// there, or its default route does.
func (n *Network) routesOutside(a *pod.Attachment) values {
	if len(*n.externals.Load()) == 0 {
		return nil
	}
	taken := make(map[netip.Prefix]bool)
	for _, i := range a.Interfaces {
		if i.Memif != nil { // its program has routes of its own
			continue
		}
		for _, p := range leadsTo(i) {
			taken[p] = true
		}
	}
	var v values
	for _, i := range a.Interfaces {
		for _, p := range n.subnetsOutside(i.Network) {
			gateway := towards(i, p)
			if !gateway.IsValid() || taken[p] {
				continue
			}
			taken[p] = true
			linkOf(a, i).linuxRoute(&v, p, gateway, netip.Addr{})
		}
	}
	return v
}

// subnetsOutside are those of the interfaces that a network has to the outside.
func (n *Network) subnetsOutside(network string) []netip.Prefix {
	var subnets []netip.Prefix
	for _, e := range n.Externals() {
		if networkOf(e.Network) != network {
			continue
		}
		for _, p := range e.Addresses {
			subnets = append(subnets, p.Masked())
		}
	}
	return subnets
}

// towards is the gateway by which an interface of a pod leads to a subnet; not valid where none is needed, or where the
// interface is no way to its network.
func towards(i pod.Interface, subnet netip.Prefix) netip.Addr {
	at := slices.IndexFunc(i.Gateways, func(g netip.Addr) bool { return g.Is4() == subnet.Addr().Is4() })
	byDefault := slices.ContainsFunc(i.Routes, func(r pod.Route) bool { return r.Destination == defaultOf(wire.FamilyOf(subnet.Addr())) })
	if at < 0 || byDefault || len(i.Routes) == 0 || i.Memif != nil || i.Type == pod.TypeIPAM {
		return netip.Addr{}
	}
	return i.Gateways[at]
}

// restoreExternals takes over the interfaces to the outside of an earlier run.
func (n *Network) restoreExternals(saved []pod.External) {
	all := maps.Clone(*n.externals.Load())
	for _, e := range saved {
		all[e.Name] = e
	}
	n.externals.Store(&all)
}

// externalPrefix begins the names of the dataplane's interfaces to the outside; no pod's begins so.
const externalPrefix = "weft-ext-"

// externalOf names the dataplane's interface of an external interface.
func externalOf(name string) string {
	if object := externalPrefix + name; len(object) <= maxObject {
		return object
	}
	return shortened(externalPrefix, name, maxObject)
}

// IsExternal reports whether an interface of the dataplane leads to the outside, and to no pod.
func IsExternal(object string) bool { return strings.HasPrefix(object, externalPrefix) }

// ExternalAlias begins the alias of each link that is made for an external interface.
const ExternalAlias = "weft:external:"

// externalAlias marks a link with the external interface that it belongs to.
func externalAlias(name string) string {
	if alias := ExternalAlias + name; len(alias) <= maxAlias {
		return alias
	}
	return shortened(ExternalAlias, name, maxAlias)
}

const (
	maxVLAN     = 4094
	maxLinkName = 15 // bytes
)

// judgeExternals are those interfaces that can be connected together, by name. Those that were connected before, just so,
// are judged first.
func (n *Network) judgeExternals(wanted []pod.External, refused map[string]string) map[string]pod.External {
	before, all := *n.externals.Load(), make(map[string]pod.External)
	for _, e := range wanted {
		if _, twice := all[e.Name]; twice {
			refused[e.Name] = "it is there twice"
		}
		e.Addresses = slices.SortedFunc(slices.Values(e.Addresses), netip.Prefix.Compare)
		all[e.Name] = e
	}
	age := func(e pod.External) int {
		if reflect.DeepEqual(before[e.Name], e) {
			return 0
		}
		return 1
	}
	joined := make(map[string]pod.External)
	for _, e := range slices.SortedFunc(maps.Values(all), func(x, y pod.External) int {
		return cmp.Or(cmp.Compare(age(x), age(y)), cmp.Compare(x.Name, y.Name))
	}) {
		if refused[e.Name] != "" {
			continue
		}
		if why := n.unconnectable(e, joined); why != "" {
			refused[e.Name] = why
			continue
		}
		joined[e.Name] = e
	}
	return joined
}

// unconnectable says why an interface cannot be connected beside others; "" if it can.
func (n *Network) unconnectable(e pod.External, others map[string]pod.External) string {
	c := n.custom(networkOf(e.Network))
	switch {
	case e.Network == pod.StubNetwork:
		return "the network stub is attached to nothing"
	case c == nil && isCustom(e.Network):
		return fmt.Sprintf("there is no network %q on this node yet", e.Network)
	}
	if why := n.unusable(e); why != "" {
		return why
	}
	for _, name := range slices.Sorted(maps.Keys(others)) {
		if why := n.collides(e, others[name]); why != "" {
			return why
		}
	}
	if c != nil && c.Network.Type == pod.L2 {
		if len(e.Addresses) > 0 {
			return fmt.Sprintf("network %s is bridged: its interfaces have no addresses", e.Network)
		}
		return ""
	}
	return n.wrongAddresses(e, c, others)
}

// unusable says why a link cannot be used at all.
func (n *Network) unusable(e pod.External) string {
	switch name := e.Interface; {
	case name == "" || len(name) > maxLinkName || strings.ContainsAny(name, "/ "):
		return fmt.Sprintf("%q is not the name of a link: it has 1 to %d bytes", name, maxLinkName)
	case name == n.config.HostLink || strings.HasPrefix(name, "weft"):
		return fmt.Sprintf("interface %s is Weft's own", name)
	case name == n.config.Uplink && e.VLAN == 0:
		return fmt.Sprintf("interface %s is the node's uplink: only a VLAN of it can be a network's", name)
	case e.VLAN < 0 || e.VLAN > maxVLAN:
		return fmt.Sprintf("VLAN %d is not within 1 and %d", e.VLAN, maxVLAN)
	}
	return ""
}

// collides says why an interface cannot be beside another one.
func (n *Network) collides(e, other pod.External) string {
	switch {
	case e.Interface != other.Interface:
		return ""
	case e.VLAN == other.VLAN && e.VLAN == 0:
		return fmt.Sprintf("interface %s is that of external interface %s", e.Interface, other.Name)
	case e.VLAN == other.VLAN:
		return fmt.Sprintf("VLAN %d of interface %s is that of external interface %s", e.VLAN, e.Interface, other.Name)
	case e.VLAN == 0 && n.isBridged(e) || other.VLAN == 0 && n.isBridged(other):
		// A bridge takes all frames of its link, those of VLANs with their tags.
		return fmt.Sprintf("interface %s is that of external interface %s too: of a bridged network it is the only one, or all have a VLAN", e.Interface, other.Name)
	}
	return ""
}

func (n *Network) isBridged(e pod.External) bool {
	c := n.custom(networkOf(e.Network))
	return c != nil && c.Network.Type == pod.L2
}

// wrongAddresses says what is wrong with the addresses of an interface of a routed network, c being nil for the network
// default.
func (n *Network) wrongAddresses(e pod.External, c *custom, others map[string]pod.External) string {
	if len(e.Addresses) == 0 {
		return fmt.Sprintf("network %s is routed: the interface needs an address", e.Network)
	}
	ranges, families := n.rangesOfPods(), n.pools.Load().families()
	if c != nil {
		ranges, families = c.Network.CIDRs, familiesOf(c.Network.CIDRs)
	}
	taken := make(map[netip.Prefix]string)
	for _, r := range ranges {
		taken[r] = "addresses of pods"
	}
	for _, other := range others {
		for _, p := range other.Addresses {
			if networkOf(other.Network) == networkOf(e.Network) {
				taken[p.Masked()] = "those of external interface " + other.Name
			}
		}
	}
	for _, p := range e.Addresses {
		a := p.Addr()
		if !isHost(a) || a.IsLinkLocalUnicast() {
			return fmt.Sprintf("%s is no address that others could reach", p)
		}
		if !slices.Contains(families, wire.FamilyOf(a)) {
			return fmt.Sprintf("network %s has no %s", e.Network, wire.FamilyOf(a))
		}
		for _, r := range slices.SortedFunc(maps.Keys(taken), netip.Prefix.Compare) {
			if r.Overlaps(p) {
				return fmt.Sprintf("%s overlaps %s, %s", p, r, taken[r])
			}
		}
		taken[p.Masked()] = "another address of its own"
	}
	return ""
}

// rangesOfPods are those of the network default, on all nodes.
func (n *Network) rangesOfPods() []netip.Prefix {
	var ranges []netip.Prefix
	for _, p := range n.pools.Load().all {
		ranges = append(ranges, p.Prefix)
	}
	for _, node := range n.mesh.nodes {
		ranges = append(ranges, n.defaultOverlay().blocksOf(node)...)
	}
	return ranges
}
