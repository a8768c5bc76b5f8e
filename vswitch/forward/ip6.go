package forward

import (
	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/slow"
)

// ip6 decides on a received IPv6 packet.
func (w *worker) ip6(in *iface, b *frame.Buffer) verdict {
	if !in.ip6 {
		return verdict{drop: dropNoIP6}
	}
	p, err := frame.ParseIPv6(b.Bytes()[frame.EthernetLen:])
	if err != nil {
		return verdict{drop: malformed6(err)}
	}
	b.SetLen(frame.EthernetLen + len(p))
	if !b.Virtio.Fits(b.Len()) {
		return verdict{drop: dropVirtio}
	}
	source, destination := p.Source(), p.Destination()
	if source.IsMulticast() || source.IsLoopback() || destination.IsLoopback() || destination.IsUnspecified() {
		return verdict{drop: dropSource6}
	}
	if in.holds(source) {
		return verdict{drop: dropSpoofed6}
	}
	if destination.IsMulticast() {
		return multicast6(p)
	}
	// A group's Ethernet address with one host's IP address is nobody's packet (RFC 1122 3.3.6 in spirit).
	if frame.Ethernet(b.Bytes()).Destination().IsMulticast() || source.IsUnspecified() {
		return verdict{drop: dropSource6}
	}
	if destination.IsLinkLocalUnicast() {
		if in.holds(destination) {
			return local6(p)
		}
		return verdict{drop: dropLinkLocal}
	}
	return w.forward6(in, b, p)
}

func (w *worker) forward6(in *iface, b *frame.Buffer, p frame.IPv6) verdict {
	out, target, stop := find(w.snapshot, in.fib6, p.Destination(), p)
	if stop.punt == slow.Received {
		if d, taken := w.fromTunnel6(in, b, p); taken {
			return d
		}
		if isDiscovery(p) {
			return verdict{punt: slow.Discovery}
		}
		u, _ := p.Upper()
		if d, taken := w.redirect(in.redirect6, b, p.Destination(), upperAt{u.Protocol, u.Offset, u.Later}); taken {
			return d
		}
		return local6(p)
	}
	if isDiscovery(p) && w.snapshot.solicitsProxied(in) {
		return verdict{punt: slow.Discovery}
	}
	if p.Source().IsLinkLocalUnicast() {
		return verdict{drop: dropLinkLocal}
	}
	if out == nil {
		return stop
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

// fromTunnel6 looks for an envelope behind what extension headers there are.
func (w *worker) fromTunnel6(in *iface, b *frame.Buffer, p frame.IPv6) (verdict, bool) {
	if !w.snapshot.takesEnvelopes() {
		return verdict{}, false
	}
	u, ok := p.Upper()
	if !ok || u.Protocol != frame.ProtocolUDP || u.Later {
		return verdict{}, false
	}
	return w.fromTunnel(b, u.Offset, routedKey(p.Source(), p.Destination(), in.table6))
}

// local6 tells neighbour discovery from what else is sent to the dataplane itself.
func local6(p frame.IPv6) verdict {
	if isDiscovery(p) {
		return verdict{punt: slow.Discovery}
	}
	return verdict{punt: slow.Received}
}

// multicast6 keeps neighbour discovery only: groups are not forwarded.
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

func malformed6(err error) reason {
	switch err {
	case frame.ErrVersion: //nolint:errorlint // frame never wraps: a worker allocates nothing
		return dropVersion6
	case frame.ErrLength:
		return dropLength6
	}
	return dropShort6
}
