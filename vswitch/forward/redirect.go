package forward

import (
	"net/netip"

	"github.com/weftnet/weft/vswitch/frame"
)

// Redirect is where packets go that an interface receives for the dataplane itself and that the dataplane does not take: to the
// kernel of a node whose network card the dataplane owns, for example. Taken are echo requests, neighbour discovery, envelopes
// and, unless UDP is set, UDP, whose sender is told that no port is open. As in VPP the TTL stays: such a packet has arrived.
type Redirect struct {
	Interface uint32
	NextHop   netip.Addr // not valid: the packet's destination is a neighbour there
	UDP       bool
}

// upperAt is the header that follows the IP headers of a packet.
type upperAt struct {
	protocol uint8
	offset   int // in the IP packet
	later    bool
}

// redirect decides on a packet for the dataplane itself; false: it is the dataplane's to answer.
func (w *worker) redirect(r *Redirect, b *frame.Buffer, destination netip.Addr, u upperAt) (verdict, bool) {
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
		d = fitted(out, b)
	}
	return d, true
}

func isEchoRequest(packet []byte, u upperAt) bool {
	if u.later || u.offset >= len(packet) {
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
