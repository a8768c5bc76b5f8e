package mesh

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// Externals holds the interfaces of the node that connect networks with the outside. Set belongs to the event loop; the
// methods that read may be called from any goroutine.
type Externals struct {
	networks *networks.Networks
	mesh     *Mesh
	all      atomic.Pointer[map[string]pod.External] // by name; the map never changes
}

// NewExternals returns no external interface.
func NewExternals(mesh *Mesh, networks *networks.Networks) *Externals {
	es := &Externals{networks: networks, mesh: mesh}
	es.all.Store(&map[string]pod.External{})
	return es
}

// Set replaces the external interfaces by the ones in the event. An interface that cannot be connected is skipped, and
// Refused says why. If interfaces exclude each other, the one that was connected before stays, or else the one with the
// lower name.
func (es *Externals) Set(ev *pod.SetExternals, t *eventloop.Txn) {
	ev.Refused = make(map[string]string)
	before := *es.all.Load()
	after := es.validate(ev.Externals, ev.Refused)
	es.all.Store(&after)
	t.OnRollback(func() error { es.all.Store(&before); return nil })
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
}

// Values lists the values of all external interfaces.
func (es *Externals) Values() desired.Values {
	var v desired.Values
	for _, e := range es.All() {
		v = append(v, es.valuesOf(e)...)
	}
	return v
}

// All lists the external interfaces that are connected, by name.
func (es *Externals) All() []pod.External {
	all := *es.all.Load()
	var externals []pod.External
	for _, name := range slices.Sorted(maps.Keys(all)) {
		externals = append(externals, all[name])
	}
	return externals
}

// Objects lists the keys of the values that connect an interface; none for an interface that is not connected.
func (es *Externals) Objects(name string) []string {
	e, connected := (*es.all.Load())[name]
	if !connected {
		return nil
	}
	return es.valuesOf(e).Keys()
}

// valuesOf lists the values that connect an interface; none if its network is not known.
func (es *Externals) valuesOf(e pod.External) desired.Values {
	c := es.networks.Custom(desired.NetworkOf(e.Network))
	if c == nil && desired.IsCustom(e.Network) {
		return nil
	}
	if e.IsTrunk() {
		return es.trunkOf(e, c)
	}
	var v desired.Values
	object := desired.ExternalOf(e.Name)
	link := e.Interface
	on := wire.LinkKey(e.Interface)
	v.Add(on, es.linkOf(e.Interface))
	if e.VLAN != 0 {
		link = desired.HostName(object)
		on = wire.VLANKey(object)
		v.Add(on, wire.VLAN{
			Parent: e.Interface,
			ID:     e.VLAN,
			Name:   link,
			Alias:  desired.ExternalAlias(e.Name),
			Up:     true,
		})
	}
	mtu := es.networks.Config.MTU
	in := desired.PodsVRF
	if c != nil {
		mtu = es.networks.MTUOf(c)
		in = c.VRF
	}
	v.Add(wire.InterfaceKey(object), wire.Interface{
		Type:     wire.TypeAFPacket,
		MAC:      desired.MACOf(object+"@"+e.Node, desired.DataplaneEnd),
		MTU:      mtu,
		Up:       true,
		AFPacket: wire.AFPacket{Link: link, On: on},
	})
	if c != nil && c.Network.Type == pod.L2 {
		return append(v, untagged(object, c, c.Label)...)
	}
	for _, f := range desired.FamiliesOf(e.Addresses) {
		v.Add(wire.InterfaceVRFKey(object, f), in.Membership(object, f))
	}
	for _, p := range e.Addresses {
		v.Add(wire.AddressKey(object, p), wire.Address{Interface: object, Prefix: p})
	}
	return v
}

// SubnetsOf lists the subnets of the external interfaces of a network.
func (es *Externals) SubnetsOf(network string) []netip.Prefix {
	var subnets []netip.Prefix
	for _, e := range es.All() {
		if desired.NetworkOf(e.Network) != network {
			continue
		}
		for _, p := range e.Addresses {
			subnets = append(subnets, p.Masked())
		}
	}
	return subnets
}

// SubnetIn returns the subnet of an external interface of a network that overlaps p, with the name of the interface; ""
// if there is none.
func (es *Externals) SubnetIn(network string, p netip.Prefix) (subnet netip.Prefix, external string) {
	for _, e := range es.All() {
		if desired.NetworkOf(e.Network) != network {
			continue
		}
		if at := slices.IndexFunc(e.Addresses, p.Overlaps); at >= 0 {
			return e.Addresses[at].Masked(), e.Name
		}
	}
	return netip.Prefix{}, ""
}

// Restore takes over the external interfaces of an earlier run.
func (es *Externals) Restore(saved []pod.External) {
	all := maps.Clone(*es.all.Load())
	for _, e := range saved {
		all[e.Name] = e
	}
	es.all.Store(&all)
}

const (
	maxVLAN     = 4094
	maxLinkName = 15 // bytes
)

// validate returns the interfaces that can be connected together, by name. Those that were connected before without a
// change are validated first.
func (es *Externals) validate(wanted []pod.External, refused map[string]string) map[string]pod.External {
	before := *es.all.Load()
	all := make(map[string]pod.External)
	for _, e := range wanted {
		if _, twice := all[e.Name]; twice {
			refused[e.Name] = "it is given twice"
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
		if why := es.unconnectable(e, joined); why != "" {
			refused[e.Name] = why
			continue
		}
		joined[e.Name] = e
	}
	return joined
}

// unconnectable says why an interface cannot be connected together with others; "" if it can.
func (es *Externals) unconnectable(e pod.External, others map[string]pod.External) string {
	c := es.networks.Custom(desired.NetworkOf(e.Network))
	switch {
	case e.Network == pod.StubNetwork:
		return "the network stub is attached to nothing"
	case c == nil && desired.IsCustom(e.Network):
		return fmt.Sprintf("there is no network %q on this node yet", e.Network)
	case c != nil && c.Network.Direct:
		return fmt.Sprintf("network %s is direct: it connects two memifs of a node only", e.Network)
	}
	if why := es.unusable(e); why != "" {
		return why
	}
	for _, name := range slices.Sorted(maps.Keys(others)) {
		if why := es.collides(e, others[name]); why != "" {
			return why
		}
	}
	if err := es.checkTrunk(e, c); err != nil {
		return err.Error()
	}
	if c != nil && c.Network.Type == pod.L2 {
		if len(e.Addresses) > 0 {
			return fmt.Sprintf("network %s is bridged: its interfaces have no addresses", e.Network)
		}
		return ""
	}
	return es.wrongAddresses(e, c, others)
}

// unusable says why a link cannot be used at all.
func (es *Externals) unusable(e pod.External) string {
	switch name := e.Interface; {
	case name == "" || len(name) > maxLinkName || strings.ContainsAny(name, "/ "):
		return fmt.Sprintf("%q is not the name of a link: it has 1 to %d bytes", name, maxLinkName)
	case name == es.mesh.config.HostLink || strings.HasPrefix(name, "weft"):
		return fmt.Sprintf("interface %s is Weft's own", name)
	case name == es.mesh.config.Uplink && e.IsTrunk():
		return fmt.Sprintf("interface %s is the node's uplink: vlans need a card of their own, use an object with vlan for each",
			name)
	case name == es.mesh.config.Uplink && e.VLAN == 0:
		return fmt.Sprintf("interface %s is the node's uplink: only a VLAN of it can be attached to a network", name)
	case e.VLAN < 0 || e.VLAN > maxVLAN:
		return fmt.Sprintf("VLAN %d is not within 1 and %d", e.VLAN, maxVLAN)
	}
	return ""
}

// collides says why two interfaces exclude each other.
func (es *Externals) collides(e, other pod.External) string {
	switch {
	case e.Interface != other.Interface:
		return ""
	case e.IsTrunk() || other.IsTrunk():
		return e.SharesTags(other)
	case e.VLAN == other.VLAN && e.VLAN == 0:
		return fmt.Sprintf("interface %s is already used by external interface %s", e.Interface, other.Name)
	case e.VLAN == other.VLAN:
		return fmt.Sprintf("VLAN %d of interface %s is already used by external interface %s", e.VLAN, e.Interface, other.Name)
	case e.VLAN == 0 && es.isBridged(e) || other.VLAN == 0 && es.isBridged(other):
		// A bridge receives all frames of its link, including tagged ones.
		return fmt.Sprintf(
			"interface %s is already used by external interface %s too: on a bridged network, external interfaces share a card only by VLANs",
			e.Interface, other.Name)
	}
	return ""
}

func (es *Externals) isBridged(e pod.External) bool {
	c := es.networks.Custom(desired.NetworkOf(e.Network))
	return c != nil && c.Network.Type == pod.L2
}

// wrongAddresses describes the error in the addresses of an interface of a routed network; c is nil for the network
// default.
func (es *Externals) wrongAddresses(e pod.External, c *networks.Custom, others map[string]pod.External) string {
	if len(e.Addresses) == 0 {
		return fmt.Sprintf("network %s is routed: the interface needs an address", e.Network)
	}
	ranges := es.rangesOfPods()
	families := es.networks.Pools().Families()
	if c != nil {
		ranges = c.Network.CIDRs
		families = desired.FamiliesOf(c.Network.CIDRs)
	}
	taken := make(map[netip.Prefix]string)
	for _, r := range ranges {
		taken[r] = "addresses of pods"
	}
	for _, other := range others {
		for _, p := range other.Addresses {
			if desired.NetworkOf(other.Network) == desired.NetworkOf(e.Network) {
				taken[p.Masked()] = "those of external interface " + other.Name
			}
		}
	}
	for _, p := range e.Addresses {
		a := p.Addr()
		if !networks.IsHost(a) || a.IsLinkLocalUnicast() {
			return fmt.Sprintf("%s is not an address that other machines can reach", p)
		}
		if !slices.Contains(families, netaddr.FamilyOf(a)) {
			return fmt.Sprintf("network %s has no %s", e.Network, netaddr.FamilyOf(a))
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

// rangesOfPods lists the address ranges of the network default on all nodes.
func (es *Externals) rangesOfPods() []netip.Prefix {
	var ranges []netip.Prefix
	for _, p := range es.networks.Pools().All {
		ranges = append(ranges, p.Prefix)
	}
	for _, node := range es.mesh.nodes.peers {
		ranges = append(ranges, es.mesh.overlays.main().blocksOf(node)...)
	}
	return ranges
}
