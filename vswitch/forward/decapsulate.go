package forward

import (
	"net/netip"
	"slices"

	"github.com/weftnet/weft/vswitch/frame"
)

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
