package forward

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/weftnet/weft/vswitch/frame"
)

// Tunnel makes an interface one end of a VXLAN tunnel (RFC 7348). What is sent to it leaves in an envelope by Table's routes,
// and is dropped if these have no way to Destination, as in VPP; what comes back from Destination with this VNI is received
// there. Only a bridge domain can do something with that: a tunnel outside of all drops it.
//
// Envelopes may be fragmented on their way, as DF is not set. Nothing asks for that: an IP packet inside that is longer
// than the interface's MTU is dropped and counted, and who routes into the tunnel by a BVI of that MTU is told.
type Tunnel struct {
	Source, Destination netip.AddrPort // of one family; packets to Source's port are taken
	VNI                 uint32         // 1 to frame.MaxVNI
	Table               uint32         // of the addresses' family
}

// tunnel is a Tunnel as workers see it.
type tunnel struct {
	Tunnel
	envelope frame.Envelope
	fib      int // slot of Table
}

// tunnelKey is what a received envelope tells of its tunnel.
type tunnelKey struct {
	local, remote netip.Addr
	vni           uint32
	table         uint32
	port          uint16 // of local
}

func (t *tunnel) key() tunnelKey {
	return tunnelKey{local: t.Source.Addr(), remote: t.Destination.Addr(), vni: t.VNI, table: t.Table, port: t.Source.Port()}
}

func (t *tunnel) tableKey() TableKey { return TableKey{FamilyOf(t.Source.Addr()), t.Table} }

// tunnels are those of a snapshot.
type tunnels struct {
	byKey  map[tunnelKey]uint32 // interface indexes
	ports  []uint16             // that envelopes come to
	routed map[uint16]int       // how many tunnels have each of ports
}

// setTunnel gives the interface its tunnel, in place of the one it had; both may be nil.
func (s *snapshot) setTunnel(i *iface, c *Tunnel) {
	old := i.tunnel
	if c == nil && old == nil || c != nil && old != nil && old.Tunnel == *c {
		return
	}
	next := tunnels{byKey: maps.Clone(s.tunnels.byKey), routed: maps.Clone(s.tunnels.routed)}
	if next.byKey == nil {
		next = tunnels{byKey: map[tunnelKey]uint32{}, routed: map[uint16]int{}}
	}
	if old != nil && next.byKey[old.key()] == i.index {
		delete(next.byKey, old.key())
		next.count(old, -1)
	}
	i.tunnel = nil
	if c != nil {
		i.tunnel = &tunnel{Tunnel: *c, envelope: frame.NewEnvelope(c.Source.Addr(), c.Destination, c.VNI)}
		i.tunnel.fib = s.slot(i.tunnel.tableKey())
		next.byKey[i.tunnel.key()] = i.index
		next.count(i.tunnel, 1)
	}
	next.ports = slices.Sorted(maps.Keys(next.routed))
	s.tunnels = next
}

// count keeps the ports of tunnels.
func (t *tunnels) count(of *tunnel, by int) {
	port := of.Source.Port()
	if t.routed[port] += by; t.routed[port] <= 0 {
		delete(t.routed, port)
	}
}

// tunnel finds the interface that an envelope belongs to, or nil.
func (s *snapshot) tunnel(k tunnelKey) *iface {
	index, ok := s.tunnels.byKey[k]
	if !ok {
		return nil
	}
	return s.iface(index)
}

// rebound is the tunnel with its table's slot of today.
func (t *tunnel) rebound(s *snapshot) *tunnel {
	if t == nil || t.fib == s.slot(t.tableKey()) {
		return t
	}
	next := *t
	next.fib = s.slot(t.tableKey())
	return &next
}

// The ports that envelopes come from, by the flow inside, so that a network with several ways uses them (RFC 7348 5).
const (
	firstTunnelPort = 49152
	tunnelPorts     = 1 << 14
)

// encapsulate sends a frame into a tunnel. A GSO frame goes as its segments: no component after this one can segment it in its
// envelope.
func (w *worker) encapsulate(out *iface, b *frame.Buffer) {
	e := frame.Ethernet(b.Bytes())
	if w.wrapping {
		w.lose(b, dropTunnelNested)
		return
	}
	port := firstTunnelPort + uint16(e.Hash()%tunnelPorts)
	_, at := e.Network()
	if b.Virtio.IsGSO() {
		w.lose(b, w.encapsulateSegments(out, b, port))
		return
	}
	switch {
	case b.Len()-at > out.mtu:
		w.lose(b, dropTunnelTooBig)
	case !frame.Complete(b.Bytes(), &b.Virtio):
		w.lose(b, dropVirtio)
	default:
		w.carry(out, b, port)
	}
}

func (w *worker) encapsulateSegments(out *iface, b *frame.Buffer, port uint16) reason {
	s, ok := frame.NewSegmenter(b.Bytes(), b.Virtio)
	if !ok {
		return dropVirtio
	}
	if _, at := frame.Ethernet(b.Bytes()).Network(); s.Longest()-at > out.mtu {
		return dropTunnelTooBig
	}
	return w.inPieces(s.Next, func(piece *frame.Buffer) { w.carry(out, piece, port) })
}

// carry puts a frame into its envelope and sends that.
func (w *worker) carry(out *iface, b *frame.Buffer, port uint16) {
	t := out.tunnel
	c := out.counters[w.id]
	c.txPackets.Add(1)
	c.txBytes.Add(uint64(b.Len()))
	w.identification++
	if !t.envelope.Push(b, port, w.identification) {
		w.lose(b, dropTunnelTooBig)
		return
	}
	w.routeEnvelope(out, b)
}

// routeEnvelope sends an envelope by the routes of its tunnel's table. A way that leads into a tunnel again is none.
func (w *worker) routeEnvelope(out *iface, b *frame.Buffer) {
	t := out.tunnel
	way, target, drop := w.wayOfEnvelope(t, b.Bytes())
	if way == nil || !b.Push(frame.EthernetLen) {
		w.lose(b, drop)
		return
	}
	kind := uint16(frame.TypeIPv4)
	if t.Source.Addr().Is6() {
		kind = frame.TypeIPv6
	}
	frame.PutEthernet(b.Bytes(), frame.MAC{}, frame.MAC{}, kind)
	d := w.rewrite(way, target, b)
	if d.punt == 0 {
		d = fitted(way, b)
	}
	w.wrapping = true
	w.dispose(out, b, d)
	w.wrapping = false
}

func (w *worker) wayOfEnvelope(t *tunnel, packet []byte) (way *iface, target netip.Addr, drop reason) {
	to := t.Destination.Addr()
	if to.Is4() {
		way, target, _ = find(w.snapshot, t.fib, to, frame.IPv4(packet))
		return way, target, dropTunnelRoute
	}
	way, target, _ = find(w.snapshot, t.fib, to, frame.IPv6(packet))
	if way != nil && len(packet) > way.mtu {
		return nil, target, dropTunnelWay // a router of IPv6 fragments nothing
	}
	return way, target, dropTunnelRoute
}

// fromTunnel decides on a packet for the dataplane itself, whose upper header begins at bytes behind the Ethernet header, if
// it comes to a port where envelopes are taken; else it says false.
func (w *worker) fromTunnel(b *frame.Buffer, at int, k tunnelKey) (verdict, bool) {
	at += frame.EthernetLen
	u, err := frame.ParseUDP(b.Bytes()[at:])
	if err != nil || !slices.Contains(w.snapshot.tunnels.ports, u.DestinationPort()) {
		return verdict{}, false
	}
	k.port = u.DestinationPort()
	switch {
	case w.opening:
		return verdict{drop: dropTunnelNested}, true
	case b.Virtio.IsGSO() && b.Virtio.GSOType == frame.GSOUDP && int(b.Virtio.ChecksumStart) == at:
		return w.openSegments(b, at, k), true
	case !soundEnvelope(b, u, k):
		return verdict{drop: dropTunnelChecksum}, true
	}
	b.SetLen(at + len(u))
	in, drop := w.open(b, at+frame.UDPLen, k)
	if in == nil {
		return verdict{drop: drop}, true
	}
	w.opening = true
	d := w.arrive(in, b)
	w.opening = false
	return d, true
}

// soundEnvelope verifies the UDP checksum where there is one: zero is none, in IPv6 too (RFC 6935).
func soundEnvelope(b *frame.Buffer, u frame.UDP, k tunnelKey) bool {
	if u[6] == 0 && u[7] == 0 || b.Virtio.Flags&(frame.VirtioNeedsChecksum|frame.VirtioDataValid) != 0 {
		return true
	}
	return frame.Sum(u, frame.PseudoHeader(k.remote, k.local, frame.ProtocolUDP, len(u))) == 0xffff
}

// openSegments takes several envelopes that came as one frame.
func (w *worker) openSegments(b *frame.Buffer, at int, k tunnelKey) verdict {
	s, ok := frame.NewSegmenter(b.Bytes(), b.Virtio)
	if !ok {
		return verdict{drop: dropVirtio}
	}
	for {
		piece := w.spare()
		if piece == nil {
			return verdict{drop: dropNoBuffer}
		}
		n := s.Next(piece.Room())
		if piece.SetLen(n); n == 0 {
			piece.Release()
			return verdict{}
		}
		w.openAndSend(piece, at+frame.UDPLen, k)
	}
}

// openAndSend decides on an envelope, and does what was decided.
func (w *worker) openAndSend(b *frame.Buffer, at int, k tunnelKey) verdict {
	in, drop := w.open(b, at, k)
	if in == nil {
		w.lose(b, drop)
		return verdict{drop: drop}
	}
	w.opening = true
	d := w.arrive(in, b)
	w.opening = false
	w.dispose(in, b, d)
	return d
}

// open takes an envelope, whose VXLAN header begins at at, off the frame inside, and returns the interface of its tunnel,
// or why there is none.
func (w *worker) open(b *frame.Buffer, at int, k tunnelKey) (*iface, reason) {
	vni, err := frame.ParseVXLAN(b.Bytes()[at:])
	if err != nil {
		return nil, dropTunnelHeader
	}
	k.vni = vni
	in := w.snapshot.tunnel(k)
	if in == nil {
		return nil, dropNoTunnel
	}
	at += frame.VXLANLen
	b.Pull(at)
	if v := &b.Virtio; int(v.ChecksumStart) > at {
		v.ChecksumStart -= uint16(at) // it was the inner packet's all the time
		v.HeaderLen -= min(v.HeaderLen, uint16(at))
	} else {
		b.Virtio = frame.Virtio{}
	}
	return in, kept
}

// arrive decides on a frame from a tunnel, which its bridge domain takes.
func (w *worker) arrive(in *iface, b *frame.Buffer) verdict {
	var tally vectorTally
	tally.bytes = uint64(b.Len())
	d := verdict{drop: dropNotBridged}
	if in.l2.slot != 0 {
		d = w.input(in, b)
	}
	tally.add(b, d)
	tally.publish(in.counters[w.id], 1)
	return d
}

// takesEnvelopes says that there are tunnels by routes, so that UDP packets for us are worth a look.
func (s *snapshot) takesEnvelopes() bool { return len(s.tunnels.ports) > 0 }

// routedKey is what the IP header of an envelope tells.
func routedKey(remote, local netip.Addr, table uint32) tunnelKey {
	return tunnelKey{remote: remote, local: local, table: table}
}
