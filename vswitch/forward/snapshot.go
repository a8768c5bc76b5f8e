package forward

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/gaissmai/bart"

	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/slow"
)

// snapshot is all a worker knows of the world. Published ones are never changed: control clones the arrays (pointers
// only) and replaces what differs.
type snapshot struct {
	interfaces []*iface // by index
	fibs       []*fib   // by slot
	fine       []*fine  // by slot
	tables     map[TableKey]int
	bridges    []*bridge // by slot; 0 is none
	proxies    *proxies
	tunnels    tunnels
}

// fib is a table of routes. BenchmarkLookup, a thousand host routes and a prefix, on a shared 2-core EPYC: bart.Fast finds
// an IPv4 route in 11 to 17 ns and an IPv6 one in 11 to 56, bart.Table in 19 to 28 and 17 to 100; a change, which copies
// the touched nodes only, takes 10 us with either. A 16-8-8 trie would save some nanoseconds of a path that costs a
// hundred, would copy 512 KiB at a change, and knows no IPv6.
type fib = bart.Fast[*entry]

// fine counts a table's IPv4 routes that are longer than blockBits, by the block of that length which they are in. All
// addresses of any other block have the same route.
type fine = bart.Table[int]

// blockBits is the length of the prefixes that ways are cached for.
const blockBits = 24

// isFine says that not all addresses of a's block have the same route.
func (s *snapshot) isFine(slot int, a netip.Addr) bool {
	_, found := s.fine[slot].Lookup(a)
	return found
}

// refine takes in that a route to p came, or went.
func (s *snapshot) refine(slot int, p netip.Prefix, change int) {
	if !p.Addr().Is4() || p.Bits() <= blockBits {
		return
	}
	block := netip.PrefixFrom(p.Addr(), blockBits).Masked()
	n, _ := s.fine[slot].Get(block)
	if n += change; n == 0 {
		s.fine[slot] = s.fine[slot].DeletePersist(block)
		return
	}
	s.fine[slot] = s.fine[slot].InsertPersist(block, n)
}

// iface is an interface as workers see it.
type iface struct {
	index      uint32
	up         bool
	bare       bool
	ip4, ip6   bool
	mtu        int
	mac        frame.MAC
	macWord    uint64 // mac as an Ethernet header begins with it, read as a little endian word
	table4     uint32
	table6     uint32
	fib4, fib6 int // slots; negative: no such table
	l2         bridgePort
	addresses  []netip.Addr
	own4       []uint32 // the IPv4 ones of addresses
	linkLocal  netip.Addr
	senders    *MACIPFilter
	acl        *ACLFilter
	proxyARP   bool
	proxyND    bool
	redirect4  *Redirect // nil: none
	redirect6  *Redirect
	tunnel     *tunnel // nil: none
	neighbours *bart.Table[*neighbour]
	counters   []*counters // by worker
	floods     []*floodBudget
}

func newSnapshot() *snapshot {
	s := &snapshot{tables: map[TableKey]int{}}
	s.addTable(TableKey{IP4, 0})
	s.addTable(TableKey{IP6, 0})
	return s
}

func (s *snapshot) clone() *snapshot {
	return &snapshot{interfaces: slices.Clone(s.interfaces), fibs: slices.Clone(s.fibs), fine: slices.Clone(s.fine), tables: s.tables, bridges: slices.Clone(s.bridges),
		proxies: s.proxies, tunnels: s.tunnels}
}

func (s *snapshot) iface(index uint32) *iface {
	if int(index) >= len(s.interfaces) {
		return nil
	}
	return s.interfaces[index]
}

func (s *snapshot) put(i *iface) {
	for int(i.index) >= len(s.interfaces) {
		s.interfaces = append(s.interfaces, nil)
	}
	s.interfaces[i.index] = i
}

// slot returns the table's position in fibs, or -1.
func (s *snapshot) slot(k TableKey) int {
	if i, ok := s.tables[k]; ok {
		return i
	}
	return -1
}

func (s *snapshot) addTable(k TableKey) {
	slot := slices.Index(s.fibs, nil)
	if slot < 0 {
		slot = len(s.fibs)
		s.fibs, s.fine = append(s.fibs, nil), append(s.fine, nil)
	}
	s.fibs[slot], s.fine[slot] = new(fib), new(fine)
	s.tables = maps.Clone(s.tables)
	s.tables[k] = slot
	s.rebind()
}

func (s *snapshot) delTable(k TableKey) {
	s.fibs[s.tables[k]], s.fine[s.tables[k]] = nil, nil
	s.tables = maps.Clone(s.tables)
	delete(s.tables, k)
	s.rebind()
}

// rebind lets every interface find its tables again after one came or went.
func (s *snapshot) rebind() {
	for _, i := range s.interfaces {
		if i == nil {
			continue
		}
		f4, f6 := s.slot(TableKey{IP4, i.table4}), s.slot(TableKey{IP6, i.table6})
		if t := i.tunnel.rebound(s); f4 != i.fib4 || f6 != i.fib6 || t != i.tunnel {
			next := *i
			next.fib4, next.fib6, next.tunnel = f4, f6, t
			s.put(&next)
		}
	}
}

const defaultMTU = 1500

func (i *iface) set(c Interface) {
	i.up, i.mtu, i.mac = c.Up, c.MTU, c.MAC
	if i.mtu == 0 {
		i.mtu = defaultMTU
	}
	i.table4, i.table6 = c.Table4, c.Table6
	i.addresses, i.linkLocal = slices.Clone(c.Addresses), c.LinkLocal
	i.macWord = wordOf(c.MAC)
	i.own4 = own4(c.Addresses)
	i.ip4 = len(i.own4) > 0
	i.ip6 = c.IP6Enabled
	i.bare = c.Bare
	i.redirect4, i.redirect6 = c.Redirect4, c.Redirect6
	i.senders, i.acl, i.proxyARP, i.proxyND = c.Senders, c.ACL, c.ProxyARP, c.ProxyND
}

// macWordMask are the bytes of a header's first word that are the receiver's address.
const macWordMask = 1<<48 - 1

// wordOf is a MAC as the low bytes of a little endian word.
func wordOf(m frame.MAC) uint64 {
	return uint64(binary.LittleEndian.Uint32(m[:])) | uint64(binary.LittleEndian.Uint16(m[4:]))<<32
}

// own4 are the IPv4 addresses among all.
func own4(all []netip.Addr) (own []uint32) {
	for _, a := range all {
		if a.Is4() {
			raw := a.As4()
			own = append(own, binary.BigEndian.Uint32(raw[:]))
		}
	}
	return own
}

// holds says that a is one of the interface's own addresses.
func (i *iface) holds(a netip.Addr) bool { return a == i.linkLocal || slices.Contains(i.addresses, a) }

// Errors that control decides on.
var (
	ErrNoInterface = errors.New("no such interface")
	ErrNoTable     = errors.New("no such table")
	ErrNoPort      = errors.New("no such port")
	ErrPortExists  = errors.New("the interface has a port")
	ErrBadRoute    = errors.New("route cannot be forwarded")
	ErrStopped     = errors.New("the forwarding engine has stopped")
)

// Family is an IP version.
type Family uint8

// The two families.
const (
	IP4 Family = 4
	IP6 Family = 6
)

// FamilyOf returns the family of a, which must be valid; an IPv4-mapped address counts as IPv6.
func FamilyOf(a netip.Addr) Family {
	if a.Is4() {
		return IP4
	}
	return IP6
}

// TableKey names a VRF's table of one family.
type TableKey struct {
	Family Family
	ID     uint32
}

// Action says what becomes of packets that match a route.
type Action uint8

// The actions. The zero value forwards.
const (
	Forward     Action = iota // over one of the paths
	Local                     // received by the dataplane itself
	Drop                      // silently
	Unreachable               // with ICMP host unreachable (IPv6: address unreachable)
	Prohibit                  // with ICMP administratively prohibited
)

// Path is one way to a destination.
type Path struct {
	// Interface is where packets leave. NoInterface: look up NextHop (if invalid, the destination) in Table.
	Interface uint32
	NextHop   netip.Addr // whose MAC is asked for; invalid: attached, the destination itself is resolved
	Table     uint32     // of the route's family; used with NoInterface only
	Weight    uint8      // share among the route's paths; 0 counts as 1
}

// Route is what a table holds for a prefix.
type Route struct {
	Action Action
	Paths  []Path // of a Forward route, at least one, at most 64; flows spread over them by hash and weight
}

// AddTable makes an empty table; one that exists is kept. Table 0 of both families exists from the start.
func (e *Engine) AddTable(k TableKey) {
	if d := e.edit(); d.slot(k) < 0 {
		d.addTable(k)
	}
}

// DelTable forgets the table and its routes; interfaces still in it find no route.
func (e *Engine) DelTable(k TableKey) {
	if d := e.edit(); d.slot(k) >= 0 {
		d.delTable(k)
	}
}

// SetRoute makes or replaces the route to a prefix. The engine keeps a copy.
func (e *Engine) SetRoute(k TableKey, p netip.Prefix, r Route) error {
	d := e.edit()
	slot := d.slot(k)
	if slot < 0 {
		return ErrNoTable
	}
	if !p.IsValid() || FamilyOf(p.Addr()) != k.Family {
		return ErrBadRoute
	}
	entry, err := newEntry(r)
	if err != nil {
		return err
	}
	if _, known := d.fibs[slot].Get(p.Masked()); !known {
		d.refine(slot, p, 1)
	}
	d.fibs[slot] = d.fibs[slot].InsertPersist(p.Masked(), entry)
	return nil
}

// DelRoute removes the route to exactly this prefix; one that is gone is no error.
func (e *Engine) DelRoute(k TableKey, p netip.Prefix) {
	d := e.edit()
	if slot := d.slot(k); slot >= 0 {
		if _, known := d.fibs[slot].Get(p.Masked()); known {
			d.refine(slot, p, -1)
		}
		d.fibs[slot] = d.fibs[slot].DeletePersist(p.Masked())
	}
}

// maxPaths bounds a route's paths and the buckets that weights are spread over.
const maxPaths = 64

// entry is a route as workers see it: paths repeated by weight, so that a flow's hash picks one by modulo.
type entry struct {
	action  Action
	buckets []Path
}

func newEntry(r Route) (*entry, error) {
	e := &entry{action: r.Action}
	if r.Action > Prohibit {
		return nil, fmt.Errorf("%w: action %d", ErrBadRoute, r.Action)
	}
	if r.Action != Forward {
		return e, nil
	}
	if len(r.Paths) == 0 || len(r.Paths) > maxPaths {
		return nil, fmt.Errorf("%w: %d paths", ErrBadRoute, len(r.Paths))
	}
	e.buckets = spread(r.Paths)
	return e, nil
}

// spread repeats each path by its weight; where that is more than maxPaths the shares are scaled, each path keeping one.
func spread(paths []Path) []Path {
	sum := 0
	for _, p := range paths {
		sum += int(max(p.Weight, 1))
	}
	out := make([]Path, 0, min(sum, 2*maxPaths))
	for _, p := range paths {
		n := int(max(p.Weight, 1))
		if sum > maxPaths {
			n = max(1, n*maxPaths/sum)
		}
		for range n {
			out = append(out, p)
		}
	}
	return out
}

// NoInterface is the interface index that names none.
const NoInterface = ^uint32(0)

// MaxInterfaces bounds interface indexes: they are positions in a dense array.
const MaxInterfaces = 1 << 16

// Interface is the layer 3 state of an interface. A loopback is an interface without a port.
type Interface struct {
	Up  bool      // admin state: a down interface receives and sends nothing
	MTU int       // layer 3: the longest IP packet sent; 0: 1500
	MAC frame.MAC // the dataplane's end: received unicast frames must carry it, sent frames do

	Table4, Table6 uint32 // the VRFs packets received here are looked up in

	// Addresses are answered by ARP and ND, and are the sources of ICMP errors and solicitations, first of a
	// family first. An unnumbered interface has its donor's. As in VPP an interface without an IPv4 address takes
	// no IPv4. Receiving packets for them is the routes' matter: control sets a Local route for each.
	Addresses []netip.Addr

	LinkLocal  netip.Addr // IPv6 link-local address; answered by ND, and received without a route
	IP6Enabled bool       // else IPv6 frames are dropped

	Bare bool // carries IP packets without Ethernet headers: it has no neighbours to resolve, and MAC must be zero

	Senders *MACIPFilter // judges what is received, in a bridge domain too, before anything else; nil: all may send

	ACL *ACLFilter // decides about received IP packets that Senders admits, in a bridge domain too; nil: all pass

	ProxyARP bool // requests for the addresses of the ranges of SetProxies are answered here, too
	ProxyND  bool // solicitations for any address are answered here

	Redirect4, Redirect6 *Redirect // of packets for the dataplane itself, by family; nil: none

	Tunnel *Tunnel // nil: none
}

// SetInterface makes the interface or changes all of it; neighbours and counters stay.
// Indexes of MaxInterfaces and above are refused with ErrNoInterface.
func (e *Engine) SetInterface(index uint32, i Interface) error {
	if index >= MaxInterfaces {
		return ErrNoInterface
	}
	d := e.edit()
	next := &iface{index: index, neighbours: noNeighbours}
	if old := d.iface(index); old != nil {
		*next = *old
	} else {
		next.counters, next.floods = newCounterSet(len(e.workers)), newFloodBudgets(e.workers)
	}
	next.set(i)
	next.fib4, next.fib6 = d.slot(TableKey{IP4, i.Table4}), d.slot(TableKey{IP6, i.Table6})
	d.setTunnel(next, i.Tunnel)
	d.put(next)
	return nil
}

// DelInterface forgets the interface, its neighbours and its counters. Its port, if any, is closed by ClosePort.
func (e *Engine) DelInterface(index uint32) {
	d := e.edit()
	if i := d.iface(index); i != nil {
		gone := *i
		d.setTunnel(&gone, nil)
		d.interfaces[index] = nil
	}
}

// neighbour is an entry of an interface's neighbour table, which points to it: it is never changed.
type neighbour struct {
	mac    frame.MAC
	static bool
}

// noNeighbours is the table every interface starts with; persistent tables are never changed in place.
var noNeighbours = new(bart.Table[*neighbour])

// SetNeighbour makes or replaces the entry of an address on an interface. A dynamic entry never replaces a static one:
// such a call changes nothing and is no error.
func (e *Engine) SetNeighbour(index uint32, a netip.Addr, m frame.MAC, static bool) error {
	d := e.edit()
	i := d.iface(index)
	if i == nil {
		return ErrNoInterface
	}
	if old, ok := i.neighbour(a); ok && old.static && !static {
		return nil
	}
	next := *i
	next.neighbours = i.neighbours.InsertPersist(hostPrefix(a), &neighbour{mac: m, static: static})
	d.put(&next)
	return nil
}

// DelNeighbour removes the entry; one that is gone is no error.
func (e *Engine) DelNeighbour(index uint32, a netip.Addr) {
	d := e.edit()
	if i := d.iface(index); i != nil {
		next := *i
		next.neighbours = i.neighbours.DeletePersist(hostPrefix(a))
		d.put(&next)
	}
}

func (i *iface) neighbour(a netip.Addr) (*neighbour, bool) { return i.neighbours.Lookup(a) }

func hostPrefix(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// Proxies are the addresses that interfaces answer for beside their own.
type Proxies struct {
	ARP []ProxyRange // by the interfaces with ProxyARP
	ND  []ProxyHost  // by all interfaces
}

// ProxyRange is IPv4 addresses from Low to High, both included, for the interfaces of an IPv4 table.
type ProxyRange struct {
	Table     uint32
	Low, High netip.Addr
}

// ProxyHost is an IPv6 host behind Interface, for the other interfaces of an IPv6 table.
type ProxyHost struct {
	Table     uint32
	Addr      netip.Addr
	Interface uint32
}

// proxies are Proxies by table, as the slow path needs them.
type proxies struct {
	ranges map[uint32][]slow.Range
	hosts  map[uint32]map[netip.Addr]uint32
}

// SetProxies replaces all there were.
func (e *Engine) SetProxies(p Proxies) {
	next := &proxies{ranges: map[uint32][]slow.Range{}, hosts: map[uint32]map[netip.Addr]uint32{}}
	for _, r := range p.ARP {
		next.ranges[r.Table] = append(next.ranges[r.Table], slow.Range{Low: r.Low, High: r.High})
	}
	for _, h := range p.ND {
		if next.hosts[h.Table] == nil {
			next.hosts[h.Table] = map[netip.Addr]uint32{}
		}
		next.hosts[h.Table][h.Addr] = h.Interface
	}
	e.edit().proxies = next
}

// proxied is whom an interface answers for.
func (s *snapshot) proxied(i *iface) slow.Proxied {
	p := slow.Proxied{Everyone: i.proxyND}
	if s.proxies == nil {
		return p
	}
	if i.proxyARP {
		p.Ranges = s.proxies.ranges[i.table4]
	}
	p.Hosts = s.proxies.hosts[i.table6]
	return p
}

// solicitsProxied says that a solicitation to one host may be one that the interface answers for that host: its asker has
// had such an answer before.
func (s *snapshot) solicitsProxied(in *iface) bool {
	return in.proxyND || s.proxies != nil && len(s.proxies.hosts) > 0
}
