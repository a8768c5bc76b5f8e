package forward

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/weftnet/weft/vswitch/frame"
)

// Tunnel makes an interface an end of a VXLAN tunnel (RFC 7348). Frames sent to the interface are encapsulated and routed by
// Table; as in VPP they are dropped if it has no route to Destination. Packets from Destination with this VNI are received on the
// interface, which must be in a bridge domain.
//
// Tunnel packets may be fragmented on their path, as DF is not set. An inner IP packet that exceeds the interface's MTU is
// dropped and counted; if it is routed through a BVI with that MTU, its sender gets an ICMP error.
type Tunnel struct {
	Source, Destination netip.AddrPort // of one family; Source has the local UDP port
	VNI                 uint32         // 1 to frame.MaxVNI
	Table               uint32         // of the addresses' family
}

// tunnel is a Tunnel as the workers see it.
type tunnel struct {
	Tunnel
	headers frame.VXLANHeaders
	fib     int // slot of Table
}

// tunnelKey identifies the tunnel of a received packet.
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

// tunnels are the tunnels of a snapshot.
type tunnels struct {
	byKey     map[tunnelKey]uint32 // interface index
	ports     []uint16             // local UDP ports
	portUsers map[uint16]int       // number of tunnels by local UDP port
}

// setTunnel replaces the tunnel of an interface; nil removes it.
func (s *snapshot) setTunnel(i *iface, c *Tunnel) {
	old := i.tunnel
	if c == nil && old == nil || c != nil && old != nil && old.Tunnel == *c {
		return
	}
	next := tunnels{byKey: maps.Clone(s.tunnels.byKey), portUsers: maps.Clone(s.tunnels.portUsers)}
	if next.byKey == nil {
		next = tunnels{byKey: map[tunnelKey]uint32{}, portUsers: map[uint16]int{}}
	}
	if old != nil && next.byKey[old.key()] == i.index {
		delete(next.byKey, old.key())
		next.count(old, -1)
	}
	i.tunnel = nil
	if c != nil {
		i.tunnel = &tunnel{Tunnel: *c, headers: frame.NewVXLANHeaders(c.Source.Addr(), c.Destination, c.VNI)}
		i.tunnel.fib = s.slot(i.tunnel.tableKey())
		next.byKey[i.tunnel.key()] = i.index
		next.count(i.tunnel, 1)
	}
	next.ports = slices.Sorted(maps.Keys(next.portUsers))
	s.tunnels = next
}

// count counts the users of a tunnel's port.
func (t *tunnels) count(of *tunnel, by int) {
	port := of.Source.Port()
	if t.portUsers[port] += by; t.portUsers[port] <= 0 {
		delete(t.portUsers, port)
	}
}

// tunnel returns the interface of a tunnel, or nil.
func (s *snapshot) tunnel(k tunnelKey) *iface {
	index, ok := s.tunnels.byKey[k]
	if !ok {
		return nil
	}
	return s.iface(index)
}

// withCurrentSlot returns the tunnel with the current slot of its table.
func (t *tunnel) withCurrentSlot(s *snapshot) *tunnel {
	if t == nil || t.fib == s.slot(t.tableKey()) {
		return t
	}
	next := *t
	next.fib = s.slot(t.tableKey())
	return &next
}

// Source ports are derived from the inner flow, so that a multipath network spreads tunnel packets (RFC 7348 5).
const (
	firstTunnelPort = 49152
	tunnelPorts     = 1 << 14
)

// vtep is the VXLAN tunnel end point of a worker.
type vtep struct {
	w             *worker
	ipID          uint16 // identification of the last outer IPv4 header
	decapsulating bool   // the current frame is the inner frame of a tunnel packet
	encapsulating bool   // the current frame is a tunnel packet
}

// encapsulate sends a frame into a tunnel. It segments a GSO frame first, because no later component can segment the inner frame.
func (v *vtep) encapsulate(out *iface, b *frame.Buffer) {
	e := frame.Ethernet(b.Bytes())
	if v.encapsulating {
		v.w.tx.discard(b, dropTunnelNested)
		return
	}
	port := firstTunnelPort + uint16(e.Hash()%tunnelPorts)
	_, at := e.Network()
	if b.Virtio.IsGSO() {
		v.w.tx.discard(b, v.encapsulateSegments(out, b, port))
		return
	}
	switch {
	case b.Len()-at > out.mtu:
		v.w.tx.discard(b, dropTunnelTooBig)
	case !frame.Complete(b.Bytes(), &b.Virtio):
		v.w.tx.discard(b, dropVirtio)
	default:
		v.send(out, b, port)
	}
}

func (v *vtep) encapsulateSegments(out *iface, b *frame.Buffer, port uint16) reason {
	s, ok := frame.NewSegmenter(b.Bytes(), b.Virtio)
	if !ok {
		return dropVirtio
	}
	if _, at := frame.Ethernet(b.Bytes()).Network(); s.Longest()-at > out.mtu {
		return dropTunnelTooBig
	}
	return v.w.tx.sendPieces(s.Next, func(piece *frame.Buffer) { v.send(out, piece, port) })
}

// encapsulateFrame adds the outer headers to a frame and sends it.
func (v *vtep) send(out *iface, b *frame.Buffer, port uint16) {
	if v.w.path != nil {
		v.w.path.add(traceStep{kind: stepEncap, iface: out.index})
	}
	t := out.tunnel
	c := out.counters[v.w.id]
	c.txPackets.Add(1)
	c.txBytes.Add(uint64(b.Len()))
	v.ipID++
	if !t.headers.Push(b, port, v.ipID) {
		v.w.tx.discard(b, dropTunnelTooBig)
		return
	}
	v.route(out, b)
}

// routeTunnel routes a tunnel packet in its tunnel's table. A route into another tunnel drops it.
func (v *vtep) route(out *iface, b *frame.Buffer) {
	t := out.tunnel
	via, target, drop := v.lookup(t, b.Bytes())
	if v.w.path != nil {
		v.w.path.lookup(stepTunnelLookup, 0, via, target)
	}
	if via == nil || !b.Push(frame.EthernetLen) {
		v.w.tx.discard(b, drop)
		return
	}
	kind := uint16(frame.TypeIPv4)
	if t.Source.Addr().Is6() {
		kind = frame.TypeIPv6
	}
	frame.PutEthernet(b.Bytes(), frame.MAC{}, frame.MAC{}, kind)
	d := v.w.rewrite(via, target, b)
	if d.punt == 0 {
		d = outputVerdict(via, b)
	}
	v.encapsulating = true
	v.w.apply(out, b, v.w.egress(b, d))
	v.encapsulating = false
}

func (v *vtep) lookup(t *tunnel, packet []byte) (via *iface, target netip.Addr, drop reason) {
	to := t.Destination.Addr()
	if to.Is4() {
		via, target, _ = resolveRoute(v.w.snapshot, t.fib, to, frame.IPv4(packet))
		return via, target, dropTunnelRoute
	}
	via, target, _ = resolveRoute(v.w.snapshot, t.fib, to, frame.IPv6(packet))
	if via != nil && len(packet) > via.mtu {
		return nil, target, dropTunnelRouteMTU // IPv6 routers do not fragment
	}
	return via, target, dropTunnelRoute
}

// receiveTunnel decides on a packet to the dataplane whose UDP header is at an offset behind the Ethernet header; false if no
// tunnel uses its port.
func (v *vtep) receive(b *frame.Buffer, at int, k tunnelKey) (verdict, bool) {
	at += frame.EthernetLen
	u, err := frame.ParseUDP(b.Bytes()[at:])
	if err != nil || !slices.Contains(v.w.snapshot.tunnels.ports, u.DestinationPort()) {
		return verdict{}, false
	}
	k.port = u.DestinationPort()
	switch {
	case v.decapsulating:
		return verdict{drop: dropTunnelNested}, true
	case b.Virtio.IsGSO() && b.Virtio.GSOType == frame.GSOUDP && int(b.Virtio.ChecksumStart) == at:
		return v.decapsulateSegments(b, at, k), true
	case !udpChecksumValid(b, u, k):
		return verdict{drop: dropTunnelChecksum}, true
	}
	b.SetLen(at + len(u))
	_, d := v.inner(b, at+frame.UDPLen, k)
	return d, true
}

// udpChecksumValid verifies the UDP checksum, if present; it may be zero with IPv6, too (RFC 6935).
func udpChecksumValid(b *frame.Buffer, u frame.UDP, k tunnelKey) bool {
	if u[6] == 0 && u[7] == 0 || b.Virtio.Flags&(frame.VirtioNeedsChecksum|frame.VirtioDataValid) != 0 {
		return true
	}
	return frame.Sum(u, frame.PseudoHeader(k.remote, k.local, frame.ProtocolUDP, len(u))) == 0xffff
}

// decapsulateSegments decapsulates the tunnel packets of a GSO frame.
func (v *vtep) decapsulateSegments(b *frame.Buffer, at int, k tunnelKey) verdict {
	s, ok := frame.NewSegmenter(b.Bytes(), b.Virtio)
	if !ok {
		return verdict{drop: dropVirtio}
	}
	return verdict{drop: v.w.tx.sendPieces(s.Next, func(piece *frame.Buffer) {
		in, d := v.inner(piece, at+frame.UDPLen, k)
		v.w.apply(in, piece, v.w.egress(piece, d))
	})}
}

// inner decapsulates a packet and decides on the inner frame, which is received on the tunnel's interface. Outside of a bridge
// domain it is dropped.
func (v *vtep) inner(b *frame.Buffer, at int, k tunnelKey) (*iface, verdict) {
	in, drop := v.decapsulate(b, at, k)
	if in == nil {
		return nil, verdict{drop: drop}
	}
	if v.w.path != nil {
		v.w.path.add(traceStep{kind: stepDecap, iface: in.index})
	}
	var tally vectorTally
	tally.bytes = uint64(b.Len())
	d := verdict{drop: dropNotBridged}
	if in.l2.slot != 0 {
		v.decapsulating = true
		d = v.w.input(in, b)
		v.decapsulating = false
	}
	tally.add(b, d)
	tally.publish(in.counters[v.w.id], 1)
	return in, d
}

// decapsulate removes the outer headers and the VXLAN header, which begins at an offset. It returns the interface of the tunnel,
// or the reason to drop the packet.
func (v *vtep) decapsulate(b *frame.Buffer, at int, k tunnelKey) (*iface, reason) {
	vni, err := frame.ParseVXLAN(b.Bytes()[at:])
	if err != nil {
		return nil, dropTunnelHeader
	}
	k.vni = vni
	in := v.w.snapshot.tunnel(k)
	if in == nil {
		return nil, dropNoTunnel
	}
	at += frame.VXLANLen
	b.Pull(at)
	if v := &b.Virtio; int(v.ChecksumStart) > at {
		v.ChecksumStart -= uint16(at) // it belongs to the inner packet
		v.HeaderLen -= min(v.HeaderLen, uint16(at))
	} else {
		b.Virtio = frame.Virtio{}
	}
	return in, noDrop
}

// hasTunnels reports whether a UDP packet to the dataplane may be a tunnel packet.
func (s *snapshot) hasTunnels() bool { return len(s.tunnels.ports) > 0 }

// isTunnelPort reports whether the first fragment of a UDP datagram is one of a tunnel packet, which the dataplane does not reassemble.
func (s *snapshot) isTunnelPort(datagram []byte) bool {
	return len(datagram) >= frame.UDPLen && slices.Contains(s.tunnels.ports, frame.UDP(datagram).DestinationPort())
}

// outerKey is the part of a tunnelKey that is in the outer IP header.
func outerKey(remote, local netip.Addr, table uint32) tunnelKey {
	return tunnelKey{remote: remote, local: local, table: table}
}

// receiveTunnel6 decides on a VXLAN packet to the dataplane, also behind extension headers; false if the packet is another one.
func (v *vtep) receive6(in *iface, b *frame.Buffer, p frame.IPv6) (verdict, bool) {
	if !v.w.snapshot.hasTunnels() {
		return verdict{}, false
	}
	u, ok := p.Upper()
	if !ok || u.Protocol != frame.ProtocolUDP || u.Later {
		return verdict{}, false
	}
	if u.Fragment {
		return verdict{drop: dropTunnelFragment}, v.w.snapshot.isTunnelPort(p[u.Offset:])
	}
	return v.receive(b, u.Offset, outerKey(p.Source(), p.Destination(), in.table6))
}
