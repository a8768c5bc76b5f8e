package forward

import (
	"encoding/binary"
	"net/netip"

	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/slow"
)

// ip4 decides on a received IPv4 packet. It always verifies the header checksum: the virtio header covers the L4
// checksum only.
func (w *worker) ip4(in *iface, b *frame.Buffer) verdict {
	if !in.ip4 {
		return verdict{drop: dropNoIP4}
	}
	p, err := frame.ParseIPv4(b.Bytes()[frame.EthernetLen:])
	if err != nil {
		return verdict{drop: malformed(err, dropVersion4, dropLength4, dropShort4)}
	}
	if !p.ChecksumValid() {
		return verdict{drop: dropChecksum4}
	}
	b.SetLen(frame.EthernetLen + len(p))
	if !b.Virtio.Fits(b.Len()) {
		return verdict{drop: dropVirtio}
	}
	source := p.Source()
	destination := p.Destination()
	if !unicast4(source) {
		return verdict{drop: dropSource4}
	}
	if in.hasAddress(source) {
		return verdict{drop: dropSpoofed4}
	}
	if !unicast4(destination) {
		return verdict{drop: dropMulticast4}
	}
	out, target, final := resolveRoute(w.snapshot, in.fib4, destination, p)
	if w.path != nil {
		w.path.lookup(stepLookup, in.table4, out, target)
	}
	if out == nil {
		if final.punt == slow.Received {
			return w.local4(in, b, p)
		}
		return final
	}
	if p.TTL() <= 1 {
		return verdict{drop: dropExpired4, punt: slow.Expired}
	}
	longest, ok := b.Virtio.LongestIP(p, p.HeaderLen(), p.Protocol())
	if !ok {
		return verdict{drop: dropVirtio}
	}
	if longest <= out.mtu {
		p.DecrementTTL()
		return w.rewrite(out, target, b)
	}
	if p.DontFragment() {
		return verdict{drop: dropTooBig4, punt: slow.TooBig, mtu: uint32(out.mtu)}
	}
	if b.Virtio.IsGSO() && !b.Virtio.Shorten(longest-out.mtu) {
		return verdict{drop: dropFragment4}
	}
	p.DecrementTTL()
	d := w.rewrite(out, target, b)
	if d.punt == 0 && !b.Virtio.IsGSO() {
		d.mtu = uint32(out.mtu)
	}
	return d
}

// local4 decides on a packet to the dataplane's own address.
func (w *worker) local4(in *iface, b *frame.Buffer, p frame.IPv4) verdict {
	if w.snapshot.hasTunnels() && p.Protocol() == frame.ProtocolUDP {
		if p.IsFragment() {
			if d, taken := w.vtep.reassemble4(in, b, p); taken {
				return d
			}
			p = frame.IPv4(b.Bytes()[frame.EthernetLen:]) // which may be whole now
		}
		if !p.IsFragment() {
			if d, taken := w.vtep.receive(in, b, p.HeaderLen(),
				outerKey(p.Source(), p.Destination(), in.table4)); taken {
				return d
			}
		}
	}
	if d, taken := w.redirect(in.redirect4, b, p.Destination(), upperHeader{
		p.Protocol(), p.HeaderLen(), p.IsFragment(),
	}); taken {
		return d
	}
	return verdict{punt: slow.Received}
}

// malformed returns the drop reason of a header that cannot be parsed.
func malformed(err error, version, length, short reason) reason {
	switch err {
	case frame.ErrVersion: //nolint:errorlint // frame never wraps: a worker does not allocate
		return version
	case frame.ErrLength:
		return length
	}
	return short
}

// unicast4 reports whether a is a unicast address of a host. A router does not forward others (RFC 1812 5.3.7).
func unicast4(a netip.Addr) bool {
	raw := a.As4()
	return isUnicast4(binary.BigEndian.Uint32(raw[:]))
}

// ip6 decides on a received IPv6 packet.
func (w *worker) ip6(in *iface, b *frame.Buffer) verdict {
	if !in.ip6 {
		return verdict{drop: dropNoIP6}
	}
	p, err := frame.ParseIPv6(b.Bytes()[frame.EthernetLen:])
	if err != nil {
		return verdict{drop: malformed(err, dropVersion6, dropLength6, dropShort6)}
	}
	b.SetLen(frame.EthernetLen + len(p))
	if !b.Virtio.Fits(b.Len()) {
		return verdict{drop: dropVirtio}
	}
	source := p.Source()
	destination := p.Destination()
	if source.IsMulticast() || source.IsLoopback() || destination.IsLoopback() || destination.IsUnspecified() {
		return verdict{drop: dropSource6}
	}
	if in.hasAddress(source) {
		return verdict{drop: dropSpoofed6}
	}
	if destination.IsMulticast() {
		return multicast6(p)
	}
	// Drop unicast packets in multicast frames (compare RFC 1122 3.3.6).
	if frame.Ethernet(b.Bytes()).Destination().IsMulticast() || source.IsUnspecified() {
		return verdict{drop: dropSource6}
	}
	if destination.IsLinkLocalUnicast() {
		if in.hasAddress(destination) {
			return local6(p)
		}
		return verdict{drop: dropLinkLocal}
	}
	return w.forward6(in, b, p)
}

func (w *worker) forward6(in *iface, b *frame.Buffer, p frame.IPv6) verdict {
	out, target, final := resolveRoute(w.snapshot, in.fib6, p.Destination(), p)
	if w.path != nil {
		w.path.lookup(stepLookup, in.table6, out, target)
	}
	if final.punt == slow.Received {
		if d, taken := w.vtep.receive6(in, b, p); taken {
			return d
		}
		if isDiscovery(p) {
			return verdict{punt: slow.Discovery}
		}
		u, _ := p.Upper()
		if d, taken := w.redirect(in.redirect6, b, p.Destination(), upperHeader{
			u.Protocol, u.Offset, u.Fragment,
		}); taken {
			return d
		}
		return local6(p)
	}
	if isDiscovery(p) && w.snapshot.maySolicitProxied(in) {
		return verdict{punt: slow.Discovery}
	}
	if p.Source().IsLinkLocalUnicast() {
		return verdict{drop: dropLinkLocal}
	}
	if out == nil {
		return final
	}
	if p.HopLimit() <= 1 {
		return verdict{drop: dropExpired6, punt: slow.Expired}
	}
	longest := len(p)
	if b.Virtio.IsGSO() {
		u, whole := p.Upper()
		n, ok := b.Virtio.LongestIP(p, u.Offset, u.Protocol)
		if !whole || !ok {
			return verdict{drop: dropVirtio}
		}
		longest = n
	}
	if longest > out.mtu {
		return verdict{drop: dropTooBig6, punt: slow.TooBig, mtu: uint32(out.mtu)}
	}
	p.DecrementHopLimit()
	return w.rewrite(out, target, b)
}

// local6 punts a packet to the dataplane's own address.
func local6(p frame.IPv6) verdict {
	if isDiscovery(p) {
		return verdict{punt: slow.Discovery}
	}
	return verdict{punt: slow.Received}
}

// multicast6 punts neighbour discovery and drops other multicast packets, which are not forwarded.
func multicast6(p frame.IPv6) verdict {
	if isDiscovery(p) {
		return verdict{punt: slow.Discovery}
	}
	return verdict{drop: dropMulticast6}
}

func isDiscovery(p frame.IPv6) bool {
	if p[6] != frame.ProtocolICMPv6 || len(p) <= frame.IPv6Len {
		return false
	}
	kind := p[frame.IPv6Len]
	return kind == frame.ICMP6Solicit || kind == frame.ICMP6Advert
}

// rewrite sets the Ethernet addresses of a frame, or punts it if the neighbour is unknown.
func (w *worker) rewrite(out *iface, target netip.Addr, b *frame.Buffer) verdict {
	if out.bare {
		frame.Ethernet(b.Bytes()).Rewrite(frame.MAC{}, frame.MAC{})
		return verdict{out: out}
	}
	n, ok := out.neighbour(target)
	if !ok {
		w.unresolved = target
		return verdict{punt: slow.Unresolved, out: out}
	}
	if w.path != nil {
		w.path.add(traceStep{kind: stepRewrite, iface: out.index, mac: n.mac})
	}
	frame.Ethernet(b.Bytes()).Rewrite(n.mac, out.mac)
	return verdict{out: out}
}

// Redirect sends packets for the dataplane's own addresses to another host, such as the kernel of a node if the
// dataplane owns its network card. The dataplane keeps echo requests, neighbour discovery, packets of its tunnels and,
// unless UDP is set, UDP, which it answers with port unreachable. As in VPP the TTL does not change, because the packet
// has reached its destination.
type Redirect struct {
	Interface uint32
	NextHop   netip.Addr // if invalid, the packet's destination is the next hop
	UDP       bool
}

// upperHeader locates the upper layer header of a packet.
type upperHeader struct {
	protocol uint8
	offset   int // from the start of the IP packet
	fragment bool
}

// redirect decides on a packet for the dataplane's own address; false if the dataplane handles it itself.
func (w *worker) redirect(r *Redirect, b *frame.Buffer, destination netip.Addr, u upperHeader) (verdict, bool) {
	if r == nil || u.protocol == frame.ProtocolUDP && !r.UDP || isEchoRequest(b.Bytes()[frame.EthernetLen:], u) {
		return verdict{}, false
	}
	out := w.snapshot.iface(r.Interface)
	if out == nil || !out.up {
		return verdict{drop: dropOutputDown}, true
	}
	target := r.NextHop
	if !target.IsValid() {
		target = destination
	}
	d := w.rewrite(out, target, b)
	if d.punt == 0 {
		d = outputVerdict(out, b)
	}
	return d, true
}

// isEchoRequest reports whether a packet is a whole echo request. Its fragments all go to the same host, which
// reassembles them.
func isEchoRequest(packet []byte, u upperHeader) bool {
	if u.fragment || u.offset >= len(packet) {
		return false
	}
	switch u.protocol {
	case frame.ProtocolICMP:
		return packet[u.offset] == frame.ICMPEcho
	case frame.ProtocolICMPv6:
		return packet[u.offset] == frame.ICMP6Echo
	}
	return false
}
