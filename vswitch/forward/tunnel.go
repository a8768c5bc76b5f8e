package forward

import (
	"maps"
	"math"
	"net/netip"
	"slices"

	"github.com/weftnet/weft/vswitch/frame"
)

// Tunnel makes an interface an end of a VXLAN tunnel (RFC 7348). Frames sent to the interface are encapsulated and
// routed by Table; as in VPP they are dropped if it has no route to Destination. Packets from Destination with this VNI
// are received on the interface, which must be in a bridge domain.
//
// Tunnel packets may be fragmented on their path, as DF is not set; the other end reassembles them. An inner IP packet
// that exceeds the interface's MTU is dropped and counted; if it is routed through a BVI with that MTU, its sender gets
// an ICMP error.
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
	return tunnelKey{
		local:  t.Source.Addr(),
		remote: t.Destination.Addr(),
		vni:    t.VNI,
		table:  t.Table,
		port:   t.Source.Port(),
	}
}

func (t *tunnel) tableKey() TableKey { return TableKey{FamilyOf(t.Source.Addr()), t.Table} }

// tunnels are the tunnels of a snapshot.
type tunnels struct {
	byKey     map[tunnelKey]uint32 // interface index
	ports     []uint16             // local UDP ports
	portUsers map[uint16]int       // number of tunnels by local UDP port
	ends      map[tunnelKey]int    // number of tunnels by addresses and table
}

// setTunnel replaces the tunnel of an interface; nil removes it.
func (s *snapshot) setTunnel(i *iface, c *Tunnel) {
	old := i.tunnel
	if c == nil && old == nil || c != nil && old != nil && old.Tunnel == *c {
		return
	}
	next := tunnels{
		byKey:     maps.Clone(s.tunnels.byKey),
		portUsers: maps.Clone(s.tunnels.portUsers),
		ends:      maps.Clone(s.tunnels.ends),
	}
	if next.byKey == nil {
		next = tunnels{byKey: map[tunnelKey]uint32{}, portUsers: map[uint16]int{}, ends: map[tunnelKey]int{}}
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

// count counts the users of a tunnel's port and of its ends.
func (t *tunnels) count(of *tunnel, by int) {
	port := of.Source.Port()
	ends := of.key().ends()
	if t.portUsers[port] += by; t.portUsers[port] <= 0 {
		delete(t.portUsers, port)
	}
	if t.ends[ends] += by; t.ends[ends] <= 0 {
		delete(t.ends, ends)
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
	fragments     *fragments
	ipID          uint16 // identification of the last outer IPv4 header
	decapsulating bool   // the current frame is the inner frame of a tunnel packet
	encapsulating bool   // the current frame is a tunnel packet
}

// encapsulate sends a frame into a tunnel. It segments a GSO frame first, because no later component can segment the
// inner frame.
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
	if !t.headers.Push(b, port, v.nextID()) {
		v.w.tx.discard(b, dropTunnelTooBig)
		return
	}
	v.route(out, b)
}

// nextID returns the identification of the next outer IPv4 header. Workers share the ends of tunnels, but no
// identifications: the other end would join fragments of different packets.
func (v *vtep) nextID() uint16 {
	next := int(v.ipID) + len(v.w.engine.workers)
	if next > math.MaxUint16 {
		next = v.w.id // the first one of this worker, whatever the number of workers
	}
	v.ipID = uint16(next)
	return v.ipID
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

// receive decides on a packet to the dataplane with its UDP header at an offset behind the Ethernet header; false if no
// tunnel uses its port, or if it belongs to another program.
func (v *vtep) receive(in *iface, b *frame.Buffer, at int, k tunnelKey) (verdict, bool) {
	at += frame.EthernetLen
	u, err := frame.ParseUDP(b.Bytes()[at:])
	if err != nil || !slices.Contains(v.w.snapshot.tunnels.ports, u.DestinationPort()) {
		return verdict{}, false
	}
	k.port = u.DestinationPort()
	if v.w.snapshot.isForKernel(in, u, k) {
		return verdict{}, false
	}
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

// inner decapsulates a packet and decides on the inner frame, which is received on the tunnel's interface. Outside of a
// bridge domain it is dropped.
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

// decapsulate removes the outer headers and the VXLAN header, which begins at an offset. It returns the interface of
// the tunnel, or the reason to drop the packet.
func (v *vtep) decapsulate(b *frame.Buffer, at int, k tunnelKey) (*iface, reason) {
	in, drop := v.w.snapshot.tunnelOf(k, b.Bytes()[at:])
	if in == nil {
		return nil, drop
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

// isTunnelFragment reports whether the first fragment of a UDP datagram is one of a tunnel packet.
func (s *snapshot) isTunnelFragment(in *iface, datagram []byte, k tunnelKey) bool {
	if len(datagram) < frame.UDPLen || !slices.Contains(s.tunnels.ports, frame.UDP(datagram).DestinationPort()) {
		return false
	}
	k.port = frame.UDP(datagram).DestinationPort()
	return !s.isForKernel(in, datagram, k)
}

// tunnelOf returns the interface of the tunnel that a VXLAN packet belongs to, or nil and the reason to drop the
// packet.
func (s *snapshot) tunnelOf(k tunnelKey, packet []byte) (*iface, reason) {
	vni, err := frame.ParseVXLAN(packet)
	if err != nil {
		return nil, dropTunnelHeader
	}
	k.vni = vni
	if in := s.tunnel(k); in != nil {
		return in, noDrop
	}
	return nil, dropNoTunnel
}

// isForKernel reports whether a UDP datagram to the tunnels' port is for the kernel that shares the dataplane's
// address: it may have VXLAN devices on the same port.
func (s *snapshot) isForKernel(in *iface, datagram []byte, k tunnelKey) bool {
	if !in.redirectsUDP(k.local) {
		return false
	}
	tunnel, _ := s.tunnelOf(k, datagram[frame.UDPLen:])
	return tunnel == nil
}

// redirectsUDP reports whether UDP packets to an address of the dataplane that it does not handle go to another host.
func (i *iface) redirectsUDP(to netip.Addr) bool {
	r := i.redirect4
	if to.Is6() {
		r = i.redirect6
	}
	return r != nil && r.UDP
}

// outerKey is the part of a tunnelKey that is in the outer IP header.
func outerKey(remote, local netip.Addr, table uint32) tunnelKey {
	return tunnelKey{remote: remote, local: local, table: table}
}

// receiveTunnel6 decides on a VXLAN packet to the dataplane, also behind extension headers; false if the packet is
// another one.
func (v *vtep) receive6(in *iface, b *frame.Buffer, p frame.IPv6) (verdict, bool) {
	if !v.w.snapshot.hasTunnels() {
		return verdict{}, false
	}
	u, ok := p.Upper()
	if u.Fragment {
		if d, taken := v.reassemble6(in, b, p); taken {
			return d, true
		}
		p = frame.IPv6(b.Bytes()[frame.EthernetLen:]) // which may be whole now
		u, ok = p.Upper()
	}
	if !ok || u.Protocol != frame.ProtocolUDP || u.Fragment {
		return verdict{}, false
	}
	return v.receive(in, b, u.Offset, outerKey(p.Source(), p.Destination(), in.table6))
}
