package forward

import (
	"net/netip"

	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/port"
	"github.com/weftnet/weft/vswitch/slow"
)

// send queues a frame on its way out until the vector ends.
func (w *worker) send(out *iface, b *frame.Buffer) {
	a := w.ports.at(out.index)
	if a == nil || a.failure.Load() != nil {
		w.sendInside(out, b)
		return
	}
	if b.Virtio.IsGSO() || b.Virtio.NeedsChecksum() {
		if r, still := w.ready(a, b); !still {
			w.lose(b, r)
			return
		}
	}
	w.enqueue(a, b)
}

// sendInside sends a frame to an interface that has no port, as it leads somewhere within the dataplane.
func (w *worker) sendInside(out *iface, b *frame.Buffer) {
	switch {
	case out.l2.bvi:
		w.fromBVI(out, b)
	case out.tunnel != nil:
		w.encapsulate(out, b)
	default:
		w.lose(b, dropNoPort)
	}
}

// lose ends a frame that was sent in another form, or for a reason was not.
func (w *worker) lose(b *frame.Buffer, r reason) {
	if r != kept {
		w.drops[r].Add(1)
	}
	b.Release()
}

// enqueue puts a frame that needs no more work into its port's queue.
func (w *worker) enqueue(a *attachment, b *frame.Buffer) {
	q := &a.queues[w.id]
	if q.n == len(q.frames) {
		w.transmit(a, q)
	}
	if q.n == 0 {
		w.dirty = append(w.dirty, a)
	}
	q.frames[q.n] = b
	q.n++
}

// enqueueAll puts frames that need no more work into a port's queue.
func (w *worker) enqueueAll(a *attachment, v []*frame.Buffer) {
	for _, b := range v {
		w.enqueue(a, b)
	}
}

// flush transmits all queues.
func (w *worker) flush() {
	for _, a := range w.dirty {
		w.transmit(a, &a.queues[w.id])
	}
	w.dirty = w.dirty[:0]
}

// transmit empties a port's queue.
func (w *worker) transmit(a *attachment, q *queue) {
	v := q.frames[:q.n]
	q.n = 0
	w.transmitFrames(a, v)
	w.pool.Put(v)
}

// transmitFrames gives frames to a port and counts what becomes of them. The buffers stay the caller's.
func (w *worker) transmitFrames(a *attachment, v []*frame.Buffer) {
	sent, err := a.port.Transmit(v)
	if err != nil {
		a.fail(err)
	}
	size := 0
	for _, b := range v {
		size += b.Len()
	}
	out := w.snapshot.iface(a.index)
	if out == nil {
		return
	}
	c := out.counters[w.id]
	c.txPackets.Add(uint64(sent))
	c.txBytes.Add(uint64(size))
	if refused := len(v) - sent; refused > 0 {
		c.txErrors.Add(uint64(refused))
		if a.shared != nil {
			w.drops[dropNoSlot].Add(uint64(refused))
		}
	}
}

// punt copies a frame to the slow path, or drops it where that is behind.
func (w *worker) punt(in *iface, b *frame.Buffer, d verdict) {
	m := w.punts.Reserve()
	if m == nil {
		w.drops[dropSlowFull].Add(1)
		return
	}
	m.Fill(b.Bytes())
	m.Reason, m.Interface, m.Virtio, m.MTU, m.Target = d.punt, in.index, b.Virtio, int(d.mtu), w.unresolved
	m.Out = NoInterface
	if d.out != nil {
		m.Out = d.out.index
	}
	w.punts.Commit()
	w.engine.slowBell.Ring()
}

// takeInjected sends what the slow path made.
func (w *worker) takeInjected() bool {
	some := false
	for range injectedBurst {
		m := w.injects.Peek()
		b := w.pool.One()
		if m == nil || b == nil {
			if b != nil {
				b.Release()
			}
			break
		}
		some = true
		b.SetLen(copy(b.Room(), m.Bytes()))
		b.Virtio = m.Virtio
		d, in := w.injected(m, b)
		w.injects.Advance()
		w.dispose(in, b, d)
	}
	if some {
		w.flush()
	}
	return some
}

// injected decides on a frame of the slow path, and names the interface it belongs to.
func (w *worker) injected(m *slow.Message, b *frame.Buffer) (verdict, *iface) {
	if m.Reason == slow.Output {
		out := w.snapshot.iface(m.Out)
		if out == nil || !out.up {
			return verdict{drop: dropOutputDown}, nil
		}
		return fitted(out, b), out
	}
	in := w.snapshot.iface(m.Interface)
	if in == nil {
		return verdict{drop: dropInterfaceDown}, nil
	}
	return w.originate(in, b), in
}

// originate routes a packet of the dataplane's own, as if it had come from in. It is never answered by an error.
func (w *worker) originate(in *iface, b *frame.Buffer) verdict {
	var out *iface
	var target netip.Addr
	raw := b.Bytes()[frame.EthernetLen:]
	if frame.Ethernet(b.Bytes()).Type() == frame.TypeIPv4 {
		p := frame.IPv4(raw)
		out, target, _ = find(w.snapshot, in.fib4, p.Destination(), p)
	} else {
		p := frame.IPv6(raw)
		out, target, _ = find(w.snapshot, in.fib6, p.Destination(), p)
	}
	if out == nil {
		return verdict{drop: dropOwnNoRoute}
	}
	return w.rewrite(out, target, b)
}

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
