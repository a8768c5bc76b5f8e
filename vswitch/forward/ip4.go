package forward

import (
	"net/netip"

	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/slow"
)

var limitedBroadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// ip4 decides on a received IPv4 packet. The header's checksum is always verified: the virtio header speaks of L4 only.
func (w *worker) ip4(in *iface, b *frame.Buffer) verdict {
	if !in.ip4 {
		return verdict{drop: dropNoIP4}
	}
	p, err := frame.ParseIPv4(b.Bytes()[frame.EthernetLen:])
	if err != nil {
		return verdict{drop: malformed4(err)}
	}
	if !p.ChecksumValid() {
		return verdict{drop: dropChecksum4}
	}
	b.SetLen(frame.EthernetLen + len(p))
	if !b.Virtio.Fits(b.Len()) {
		return verdict{drop: dropVirtio}
	}
	source, destination := p.Source(), p.Destination()
	if !unicast4(source) {
		return verdict{drop: dropSource4}
	}
	if in.holds(source) {
		return verdict{drop: dropSpoofed4}
	}
	if !unicast4(destination) {
		return verdict{drop: dropMulticast4}
	}
	out, target, stop := find(w.snapshot, in.fib4, destination, p)
	if out == nil {
		if stop.punt == slow.Received {
			return w.local4(in, b, p)
		}
		return stop
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

// local4 decides on a packet for the dataplane itself.
func (w *worker) local4(in *iface, b *frame.Buffer, p frame.IPv4) verdict {
	if w.snapshot.takesEnvelopes() && p.Protocol() == frame.ProtocolUDP && !p.IsFragment() {
		if d, taken := w.fromTunnel(b, p.HeaderLen(), routedKey(p.Source(), p.Destination(), in.table4)); taken {
			return d
		}
	}
	if d, taken := w.redirect(in.redirect4, b, p.Destination(), upperAt{p.Protocol(), p.HeaderLen(), p.FragmentOffset() != 0}); taken {
		return d
	}
	return verdict{punt: slow.Received}
}

func malformed4(err error) reason {
	switch err {
	case frame.ErrVersion: //nolint:errorlint // frame never wraps: a worker allocates nothing
		return dropVersion4
	case frame.ErrLength:
		return dropLength4
	}
	return dropShort4
}

// unicast4 says that a names one host: what else there is does not cross a router (RFC 1812 5.3.7).
func unicast4(a netip.Addr) bool {
	return !a.IsMulticast() && !a.IsLoopback() && !a.IsUnspecified() && a != limitedBroadcast
}
