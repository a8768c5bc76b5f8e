package ipnet

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// ChangeNetworks makes the custom networks those of the event, as far as pods allow it. What cannot be is left as it was,
// and Refused says why. Numbers are given in the order of the names, and those that become free are not given again by the
// same event: the dataplane knows them until it is done.
func (n *Network) ChangeNetworks(_ context.Context, ev *pod.SetNetworks, t *eventloop.Txn) error {
	ch := &change{Network: n, ev: ev, t: t, before: n.customNetworks(), after: maps.Clone(n.customNetworks()), taken: map[string]map[uint32]bool{}}
	ev.Refused = make(map[string]string)
	outside := n.outsideValues()
	wanted := ch.wanted()
	for _, name := range slices.Sorted(maps.Keys(ch.before)) {
		if _, stays := wanted[name]; !stays && ev.Refused[name] == "" {
			ch.remove(name)
		}
	}
	for _, w := range slices.SortedFunc(maps.Values(wanted), chosenVNIFirst) {
		if err := ch.set(w); err != nil {
			ev.Refused[w.Name] = err.Error()
		}
	}
	n.customs.Store(&ch.after)
	refused := maps.Clone(ev.Refused)
	maps.Copy(refused, ev.Invalid)
	former := n.refused.Swap(&refused)
	t.OnRollback(func() error { n.customs.Store(&ch.before); n.refused.Store(former); return nil })
	// An interface to the outside that fits its network no more is let go; who wants it there sets it again.
	n.joinOutside(n.judgeExternals(n.Externals(), make(map[string]string)), outside, t)
	return nil
}

func chosenVNIFirst(a, b pod.Network) int {
	if (a.VNI == 0) != (b.VNI == 0) {
		return cmp.Compare(b.VNI, a.VNI)
	}
	return cmp.Compare(a.Name, b.Name)
}

// change is what one event does to the custom networks.
type change struct {
	*Network
	ev            *pod.SetNetworks
	t             *eventloop.Txn
	before, after map[string]*custom
	taken         map[string]map[uint32]bool // by what they number; made when first asked for
}

// wanted are the networks of the event that make sense, by name. One that is there twice stays as it was.
func (ch *change) wanted() map[string]pod.Network {
	wanted := make(map[string]pod.Network)
	for _, w := range ch.ev.Networks {
		if _, twice := wanted[w.Name]; twice {
			ch.ev.Refused[w.Name] = "it is there twice"
		} else if err := ch.sound(w); err != nil && !(w.Closed && ch.before[w.Name] != nil) {
			ch.ev.Refused[w.Name] = err.Error()
		}
		wanted[w.Name] = ordered(w)
	}
	for name := range ch.ev.Refused {
		delete(wanted, name)
	}
	return wanted
}

// sound validates the specification of a network for this node.
func (ch *change) sound(w pod.Network) error {
	if err := sound(w); err != nil || w.VNI == 0 {
		return err
	}
	return ch.config.carries("network "+w.Name, w.MTU)
}

// ordered is a network with its CIDRs in the order that is kept, IPv4 first.
func ordered(w pod.Network) pod.Network {
	w.CIDRs = slices.SortedFunc(slices.Values(w.CIDRs), func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	return w
}

func (ch *change) remove(name string) {
	if users := ch.users(name); users != "" {
		ch.ev.Refused[name] = "it cannot be removed: " + users
		ch.isolate(ch.before[name])
		return
	}
	ch.takeAway(ch.before[name])
	delete(ch.after, name)
}

// isolate closes a network that pods use although the cluster has deleted it or changed its VNI. It also removes the tunnels: another
// network may have the old VNI now.
func (ch *change) isolate(was *custom) {
	if was.Network.VNI == 0 {
		ch.close(was)
		return
	}
	c := *was
	c.Network.VNI, c.VNI, c.Network.Closed = 0, 0, true
	ch.after[c.Network.Name] = &c
	ch.t.Save(networksBucket, c.Network.Name, c.SavedNetwork)
	replace(ch.t, ch.networkValues(was), ch.networkValues(&c))
}

// set makes a network, or makes it another.
func (ch *change) set(w pod.Network) error {
	was := ch.before[w.Name]
	if w.Closed && was != nil {
		ch.close(was)
		return nil
	}
	_, needsBridge := ch.config.numbered(w)
	switch {
	case was == nil:
		was = &custom{}
	case reflect.DeepEqual(was.Network, w) && needsBridge == (was.BridgeDomain != 0):
		return nil
	case was.Network.Type == w.Type && slices.Equal(was.Network.CIDRs, w.CIDRs) && (w.VNI == 0 || w.VNI == was.VNI || was.Network.VNI == 0):
		return ch.alter(was, w)
	}
	if users := ch.users(w.Name); users != "" {
		if was.Network.VNI != 0 && w.VNI != was.VNI {
			ch.isolate(was)
		}
		return fmt.Errorf("its type, CIDRs and VNI cannot change: %s", users)
	}
	c, err := ch.build(w, was.SavedNetwork)
	if err != nil {
		return err
	}
	if was.Network.Name != "" {
		ch.takeAway(was)
	}
	ch.keep(c)
	return nil
}

// close keeps a network as it is for the pods that use it. No pod is added to it.
func (ch *change) close(was *custom) {
	if was.Network.Closed {
		return
	}
	c := *was
	c.Network.Closed = true
	ch.after[c.Network.Name] = &c
	ch.t.Save(networksBucket, c.Network.Name, c.SavedNetwork)
}

// alter changes what pods do not depend on. That includes a VNI that only this node has chosen: the network has no tunnels yet.
func (ch *change) alter(was *custom, w pod.Network) (err error) {
	s := was.SavedNetwork
	s.Network = w
	if w.VNI != 0 {
		if s.VNI, err = w.VNI, ch.checkVNI(w.VNI, w.Name); err != nil {
			return err
		}
	}
	if _, needsBridge := ch.config.numbered(w); !needsBridge {
		s.BridgeDomain = 0
	} else if s.BridgeDomain, err = ch.bridgeDomain(s.BridgeDomain); err != nil {
		return err
	}
	c := &custom{SavedNetwork: s, vrf: was.vrf, addresses: was.addresses}
	ch.after[w.Name] = c
	ch.t.Save(networksBucket, w.Name, s)
	replace(ch.t, ch.networkValues(was), ch.networkValues(c))
	return nil
}

func (ch *change) bridgeDomain(had uint32) (uint32, error) {
	return ch.number("bridge domain", had, ch.config.BridgeDomains, func(c *custom) uint32 { return c.BridgeDomain })
}

// networkValues are what is there of a network without pods, here and towards other nodes.
func (n *Network) networkValues(c *custom) values {
	return append(c.values(n.mtuOf(c)), n.networkMesh(c)...)
}

// build makes a network that has no pods; numbers that it had stay its own.
func (ch *change) build(w pod.Network, had SavedNetwork) (c *custom, err error) {
	s := SavedNetwork{Network: w, VNI: w.VNI}
	needsTable, needsBridge := ch.config.numbered(w)
	if needsTable {
		s.Table, err = ch.number("VRF table", had.Table, ch.config.Tables, func(c *custom) uint32 { return c.Table })
	}
	if needsBridge && err == nil {
		s.BridgeDomain, err = ch.bridgeDomain(had.BridgeDomain)
	}
	if w.VNI == 0 && err == nil {
		s.VNI, err = ch.number("VNI", had.VNI, ch.config.VNIs, func(c *custom) uint32 { return c.VNI })
	}
	if err != nil {
		return nil, err
	}
	if err := ch.checkVNI(s.VNI, w.Name); err != nil {
		return nil, err
	}
	return ch.newCustom(s)
}

// number is the one that a network had, else the lowest that no network has, or had before the event.
func (ch *change) number(what string, had uint32, from IDs, of func(*custom) uint32) (uint32, error) {
	if had != 0 {
		return had, nil
	}
	taken := ch.taken[what]
	if taken == nil {
		taken = map[uint32]bool{of(&custom{SavedNetwork: ch.ofDefault()}): true}
		for _, networks := range []map[string]*custom{ch.before, ch.after} {
			for _, c := range networks {
				taken[of(c)] = true
			}
		}
		ch.taken[what] = taken
	}
	id, err := from.lowest(what, taken)
	taken[id] = true
	return id, err
}

// ofDefault are the numbers of the network default.
func (n *Network) ofDefault() SavedNetwork {
	s := SavedNetwork{Table: n.config.PodVRFTable}
	if n.config.hasTunnels() {
		s.BridgeDomain, s.VNI = n.config.MeshDomain, n.config.VNI
	}
	return s
}

// checkVNI returns an error if a network other than the named one has the VNI.
func (ch *change) checkVNI(vni uint32, name string) error {
	other := ""
	if vni == ch.ofDefault().VNI {
		other = pod.DefaultNetwork
	}
	for of, c := range ch.after {
		if c.VNI == vni && of != name {
			other = of
		}
	}
	if other == "" {
		return nil
	}
	return fmt.Errorf("VNI %d is that of network %s", vni, other)
}

// keep makes a network, as it is now, one of those after the event.
func (ch *change) keep(c *custom) {
	ch.after[c.Network.Name] = c
	ch.t.Save(networksBucket, c.Network.Name, c.SavedNetwork)
	ch.networkValues(c).put(ch.t)
}

// takeAway forgets a network and all that is kept of its addresses.
func (ch *change) takeAway(c *custom) {
	for _, key := range ch.networkValues(c).keys() {
		ch.t.Delete(key)
	}
	ch.t.Save(networksBucket, c.Network.Name, nil)
	if c.addresses == nil {
		return
	}
	for _, l := range c.addresses.Remembered() {
		ch.t.Save(leasesBucket, l.Key(), nil)
	}
}

// users says which pods a network has; "" if none.
func (n *Network) users(network string) string {
	var first *connection
	more := -1
	for _, c := range n.wired {
		if !slices.ContainsFunc(c.Interfaces, func(i pod.Interface) bool { return i.Network == network }) {
			continue
		}
		if more++; first == nil || c.Key.String() < first.Key.String() {
			first = c
		}
	}
	switch {
	case first == nil:
		return ""
	case more == 0:
		return fmt.Sprintf("%s (%s) is attached to it; delete it first", first.Name(), first.Key)
	}
	return fmt.Sprintf("%s (%s) and %d more are attached to it; delete them first", first.Name(), first.Key, more)
}

// SavedNetwork is what is kept of a custom network: as it was set, and its numbers, which stay its own until it is
// removed.
type SavedNetwork struct {
	Network      pod.Network `json:"network"`
	Table        uint32      `json:"table,omitempty"` // of its VRFs; 0: it has none
	BridgeDomain uint32      `json:"bd,omitempty"`    // of type L2, or of its tunnels
	VNI          uint32      `json:"vni"`
}

// custom is a network of SavedNetwork that stands. It never changes: another one takes its place.
type custom struct {
	SavedNetwork
	vrf
	addresses *ipam.Allocator // nil: it has no CIDRs
}

// newCustom makes a network whose addresses are all free.
func (n *Network) newCustom(s SavedNetwork) (*custom, error) {
	c := &custom{SavedNetwork: s, vrf: vrf{label: labelOf(s.Network.Name), loopback: loopbackOf(s.Network.Name)}}
	if len(s.Network.CIDRs) == 0 {
		return c, nil
	}
	var err error
	c.addresses, err = ipam.New(ipam.Config{Pools: c.shared(n.config.Blocks), CoolDown: n.config.CoolDown, Now: n.config.Now})
	if err != nil {
		return nil, err
	}
	n.blocksOf(s.Network.Name, c.addresses)
	for _, l := range n.withheld {
		n.withhold(c, l)
	}
	return c, nil
}

// shared are the pools, of several nodes or of this one alone.
func (c *custom) shared(blocks bool) []ipam.Pool {
	pools := c.pools()
	for i := range pools {
		pools[i].Blocks = blocks
	}
	return pools
}

// pools are one for each CIDR.
func (c *custom) pools() []ipam.Pool {
	var pools []ipam.Pool
	for _, cidr := range c.Network.CIDRs {
		pools = append(pools, ipam.Pool{Name: PoolOfNetwork(c.Network.Name, wire.FamilyOf(cidr.Addr())), Prefix: cidr})
	}
	return pools
}

// numbered reports which numbers a network needs. A routed one has its tunnels in a bridge domain.
func (c Config) numbered(n pod.Network) (table, bridge bool) {
	return len(n.CIDRs) > 0, n.Type == pod.L2 || n.VNI != 0 && c.hasTunnels()
}

// values are what is there of a network without pods.
func (c *custom) values(mtu int) values {
	var v values
	if c.Network.Type == pod.L2 {
		c.domain(&v)
	}
	families := familiesOf(c.Network.CIDRs)
	if len(families) == 0 {
		return v
	}
	for _, f := range families {
		v.add(wire.VRFKey(c.label, f), wire.VRF{ID: c.Table, Family: f, Label: c.label})
	}
	v = append(v, c.interfaceOf(mtu, families)...)
	if c.Network.Type == pod.L2 {
		v.add(wire.BridgeMemberKey(c.loopback), wire.BridgeMember{BridgeDomain: c.label, Interface: c.loopback, BVI: true})
	}
	for _, p := range c.pools() {
		own := single(p.Node())
		if c.Network.Type == pod.L2 {
			own = netip.PrefixFrom(p.Node(), p.Prefix.Bits())
		} else {
			c.unreachable(&v, p.Prefix)
		}
		v.add(wire.AddressKey(c.loopback, own), wire.Address{Interface: c.loopback, Prefix: own})
	}
	return v
}

// attach makes a link one of the network's.
func (c *custom) attach(l link) values {
	var v values
	if c.Network.Type == pod.L2 {
		v.add(wire.BridgeMemberKey(l.object), wire.BridgeMember{
			BridgeDomain: c.label, Interface: l.object, Judged: l.judged, Filtered: c.isGuarded(), LinuxEnd: l.linuxEnd(),
		})
		c.introduce(&v, l)
		if c.isGuarded() {
			l.guarded(&v)
		}
	} else {
		v = c.vrf.attach(l, familiesOf(c.Network.CIDRs))
	}
	switch {
	case l.judged && len(c.Network.CIDRs) == 0: // only its MAC is known of a pod
		l.onlyFrom(&v, defaultOf(wire.IP4), defaultOf(wire.IP6))
	case l.judged:
		l.onlyFrom(&v, singles(l.addresses)...)
	}
	return v
}

// isGuarded reports whether pods may neither be routers nor DHCP servers of the network: not if Weft assigns its addresses.
func (c *custom) isGuarded() bool { return c.Network.Type == pod.L2 && len(c.Network.CIDRs) > 0 }

// sound validates the specification of a network.
func sound(w pod.Network) error {
	if err := w.Validate(); err != nil {
		return err
	}
	for _, cidr := range w.CIDRs {
		if err := (ipam.Pool{Name: w.Name, Prefix: cidr}).Validate(); err != nil {
			return err
		}
	}
	return nil
}
