package forward

import (
	"net/netip"

	"github.com/weftnet/weft/vswitch/frame"
)

// The ports that envelopes come from, by the flow inside, so that a network with several ways uses them (RFC 7348 5).
const (
	firstTunnelPort = 49152
	tunnelPorts     = 1 << 14
)

// encapsulate sends a frame into a tunnel. A GSO frame goes as its segments: nobody behind us knows how to cut it in its
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
