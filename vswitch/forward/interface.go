package forward

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/gaissmai/bart"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/vswitch/frame"
)

// NoInterface is the invalid interface index.
const NoInterface = ^uint32(0)

// MaxInterfaces limits interface indexes, which are positions in an array.
const MaxInterfaces = 1 << 16

const defaultMTU = 1500

// Interface is the configuration of an interface. A loopback is an interface without a port.
type Interface struct {
	Up  bool      // administrative state: a down interface neither receives nor sends
	MTU int       // longest IP packet to send; 0: 1500
	MAC frame.MAC // source of sent frames; received unicast frames must have it as destination

	Table4, Table6 uint32 // VRFs of received packets

	// Addresses are answered by ARP and ND, and are the sources of ICMP errors and solicitations; the first address of
	// a family is preferred. An unnumbered interface has the addresses of its donor. As in VPP an interface without an
	// IPv4 address drops IPv4. Control must add a Local route for each address.
	Addresses []netip.Addr

	LinkLocal  netip.Addr // answered by ND, and local without a route
	IP6Enabled bool       // otherwise IPv6 frames are dropped

	Bare bool // carries IP packets without Ethernet headers; no neighbours, and MAC is zero

	MACIP *MACIPFilter // applied first to all received frames, also in a bridge domain; nil: all pass

	ACL AccessLists // of IP packets, also in a bridge domain; the input ACLs are applied after MACIP

	ProxyARP bool // answer ARP for the ranges of SetProxies
	ProxyND  bool // answer solicitations for any address

	Redirect4, Redirect6 *Redirect // of packets to the dataplane's own addresses; nil: none

	Tunnel *Tunnel

	Sub *Sub // nil: not a sub-interface

	Mirrors []Mirror // of an interface with a port

	PoliceInput  *Policer // of received frames, before all filters; nil: all pass
	PoliceOutput *Policer // of sent frames, after all filters
}

// links configures interfaces and their neighbours.
type links struct {
	*draft
	sessionLimit   int    // of an interface
	listGeneration uint32 // number of changes of access lists
}

// SetInterface creates an interface or replaces its configuration; neighbours and counters stay. It returns
// ErrNoInterface for an index of MaxInterfaces or more.
func (l *links) SetInterface(index uint32, i Interface) error {
	if index >= MaxInterfaces {
		return ErrNoInterface
	}
	d := l.edit()
	next := &iface{index: index, neighbours: noNeighbours}
	if old := d.iface(index); old != nil {
		*next = *old
	} else {
		next.subs = d.subsOf(index)
		next.counters = newCounterSet(len(l.workers))
		next.floods = newFloodBudgets(l.workers)
		next.punts = newPuntBudgets(l.workers)
	}
	next.set(i)
	next.setAccessLists(i.ACL, l)
	next.fib4 = d.slot(TableKey{IP4, i.Table4})
	next.fib6 = d.slot(TableKey{IP6, i.Table6})
	d.setTunnel(next, i.Tunnel)
	d.setSub(next, i.Sub)
	d.put(next)
	return nil
}

// DelInterface deletes an interface, if it exists, with neighbours and counters. ClosePort closes its port.
func (l *links) DelInterface(index uint32) {
	d := l.edit()
	if i := d.iface(index); i != nil {
		gone := *i
		d.setTunnel(&gone, nil)
		d.setSub(&gone, nil)
		d.interfaces[index] = nil
	}
}

// iface is an interface as the workers see it.
type iface struct {
	index      uint32
	up         bool
	bare       bool
	ip4, ip6   bool
	mtu        int
	mac        frame.MAC
	macWord    uint64 // mac as a little endian word
	table4     uint32
	table6     uint32
	fib4, fib6 int // slots; negative: no table
	l2         bridgePort
	addresses  []netip.Addr
	addresses4 []uint32 // the IPv4 addresses as words
	linkLocal  netip.Addr
	macip      *MACIPFilter
	acl        *accessLists // nil: none
	proxyARP   bool
	proxyND    bool
	redirect4  *Redirect // nil: none
	redirect6  *Redirect
	tunnel     *tunnel  // nil: none
	sub        *Sub     // nil: not a sub-interface
	subs       subs     // its own sub-interfaces; nil: none
	mirrors    *mirrors // nil: none
	policeIn   *Policer // nil: all pass
	policeOut  *Policer
	neighbours *bart.Table[*neighbour]
	counters   []*counters // by worker, as are the budgets
	floods     []*budget
	punts      []*budget
}

func (i *iface) set(c Interface) {
	i.up = c.Up
	i.mtu = c.MTU
	i.mac = c.MAC
	if i.mtu == 0 {
		i.mtu = defaultMTU
	}
	i.table4 = c.Table4
	i.table6 = c.Table6
	i.addresses = slices.Clone(c.Addresses)
	i.linkLocal = c.LinkLocal
	i.macWord = wordOf(c.MAC)
	i.addresses4 = ipv4Words(c.Addresses)
	i.ip4 = len(i.addresses4) > 0
	i.ip6 = c.IP6Enabled
	i.bare = c.Bare
	i.redirect4 = c.Redirect4
	i.redirect6 = c.Redirect6
	i.macip = c.MACIP
	i.proxyARP = c.ProxyARP
	i.proxyND = c.ProxyND
	i.mirrors = newMirrors(c.Mirrors)
	i.policeIn = c.PoliceInput
	i.policeOut = c.PoliceOutput
}

// macWordMask selects the destination MAC in the first word of an Ethernet header.
const macWordMask = 1<<48 - 1

// wordOf returns a MAC as the low bytes of a little endian word.
func wordOf(m frame.MAC) uint64 {
	return uint64(binary.LittleEndian.Uint32(m[:])) | uint64(binary.LittleEndian.Uint16(m[4:]))<<32
}

// ipv4Words returns the IPv4 addresses of a list as words.
func ipv4Words(all []netip.Addr) (own []uint32) {
	for _, a := range all {
		if a.Is4() {
			raw := a.As4()
			own = append(own, binary.BigEndian.Uint32(raw[:]))
		}
	}
	return own
}

// hasAddress reports whether a is an address of the interface.
func (i *iface) hasAddress(a netip.Addr) bool {
	return a == i.linkLocal || slices.Contains(i.addresses, a)
}

// neighbour is an immutable neighbour entry.
type neighbour struct {
	mac    frame.MAC
	static bool
}

// noNeighbours is the empty table of new interfaces; persistent tables are never changed in place.
var noNeighbours = new(bart.Table[*neighbour])

// SetNeighbour adds or replaces a neighbour. A dynamic entry does not replace a static one, which is no error.
func (l *links) SetNeighbour(index uint32, a netip.Addr, m frame.MAC, static bool) error {
	d := l.edit()
	i := d.iface(index)
	if i == nil {
		return ErrNoInterface
	}
	if old, ok := i.neighbour(a); ok && old.static && !static {
		return nil
	}
	next := *i
	next.neighbours = i.neighbours.InsertPersist(netaddr.Single(a), &neighbour{mac: m, static: static})
	d.put(&next)
	return nil
}

// DelNeighbour deletes a neighbour, if it exists.
func (l *links) DelNeighbour(index uint32, a netip.Addr) {
	d := l.edit()
	if i := d.iface(index); i != nil {
		next := *i
		next.neighbours = i.neighbours.DeletePersist(netaddr.Single(a))
		d.put(&next)
	}
}

func (i *iface) neighbour(a netip.Addr) (*neighbour, bool) { return i.neighbours.Lookup(a) }
