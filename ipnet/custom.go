package ipnet

import (
	"net/netip"

	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

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

// sound says what is wrong with a network as somebody wants it.
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
