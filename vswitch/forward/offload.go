package forward

import (
	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/port"
)

// ready does for a frame what its port does not: it completes the checksum, or sends the frame's segments in its place.
// False: the frame itself has nothing to be sent any more, and r says why if that is a loss.
func (w *worker) ready(a *attachment, b *frame.Buffer) (r reason, still bool) {
	switch {
	case takes(a.takes, &b.Virtio):
		return kept, true
	case b.Virtio.IsGSO():
		return w.sendSegments(a, b), false
	case frame.Complete(b.Bytes(), &b.Virtio):
		return kept, true
	}
	return dropVirtio, false
}

// takes says whether a port finishes what is left undone in a frame.
func takes(o port.Offload, v *frame.Virtio) bool {
	switch v.GSOType &^ frame.GSOECN {
	case frame.GSONone:
		return o.Checksum
	case frame.GSOUDP:
		return o.UDP
	}
	return o.TCP
}

func (w *worker) sendSegments(a *attachment, b *frame.Buffer) reason {
	s, ok := frame.NewSegmenter(b.Bytes(), b.Virtio)
	if !ok {
		return dropVirtio
	}
	return w.inPieces(s.Next, func(piece *frame.Buffer) { w.enqueue(a, piece) })
}

// sendFragments sends a packet that is longer than the way out allows in pieces.
func (w *worker) sendFragments(out *iface, b *frame.Buffer, mtu int) reason {
	if !frame.Complete(b.Bytes(), &b.Virtio) {
		return dropVirtio
	}
	f, ok := frame.NewFragmenter(b.Bytes(), mtu)
	if !ok {
		return dropFragment4
	}
	return w.inPieces(f.Next, func(piece *frame.Buffer) { w.send(out, piece) })
}

// inPieces sends what next cuts off, each piece in a buffer of its own, until nothing is left.
func (w *worker) inPieces(next func(room []byte) int, send func(piece *frame.Buffer)) reason {
	for {
		piece := w.spare()
		if piece == nil {
			return dropNoBuffer
		}
		n := next(piece.Room())
		if piece.SetLen(n); n == 0 {
			piece.Release()
			return kept
		}
		send(piece)
	}
}

// spare takes an empty buffer. Where all are on their way out, that is where they go first.
func (w *worker) spare() *frame.Buffer {
	if b := w.pool.One(); b != nil {
		return b
	}
	w.flush()
	return w.pool.One()
}

// fitted is the verdict on an IP packet that is ready for out: sent whole, or in fragments where it is longer than out's
// MTU and may be cut.
func fitted(out *iface, b *frame.Buffer) verdict {
	d := verdict{out: out}
	raw := b.Bytes()
	if len(raw) <= frame.EthernetLen+out.mtu || b.Virtio.IsGSO() || frame.Ethernet(raw).Type() != frame.TypeIPv4 {
		return d
	}
	if p, err := frame.ParseIPv4(raw[frame.EthernetLen:]); err == nil && len(p) > out.mtu && !p.DontFragment() {
		d.mtu = uint32(out.mtu)
	}
	return d
}
