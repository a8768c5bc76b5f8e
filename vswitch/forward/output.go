package forward

import (
	"net/netip"

	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/port"
	"github.com/weftnet/weft/vswitch/slow"
)

// send queues a frame for transmission at the end of the vector.
func (w *worker) send(out *iface, b *frame.Buffer) {
	a := w.ports.at(out.index)
	if a == nil || a.failure.Load() != nil {
		w.sendInside(out, b)
		return
	}
	if b.Virtio.IsGSO() || b.Virtio.NeedsChecksum() {
		if r, still := w.completeOffloads(a, b); !still {
			w.discard(b, r)
			return
		}
	}
	w.enqueue(a, b)
}

// sendInside sends a frame to an interface without a port: a BVI or a tunnel.
func (w *worker) sendInside(out *iface, b *frame.Buffer) {
	switch {
	case out.l2.bvi:
		w.fromBVI(out, b)
	case out.tunnel != nil:
		w.encapsulate(out, b)
	default:
		w.discard(b, dropNoPort)
	}
}

// discard releases a frame, and counts a drop unless r is noDrop.
func (w *worker) discard(b *frame.Buffer, r reason) {
	if r != noDrop {
		w.drops[r].Add(1)
	}
	b.Release()
}

// enqueue appends a complete frame to the queue of a port.
func (w *worker) enqueue(a *attachedPort, b *frame.Buffer) {
	q := &a.txQueues[w.id]
	if q.n == len(q.frames) {
		w.transmit(a, q)
	}
	if q.n == 0 {
		w.pendingTx = append(w.pendingTx, a)
	}
	q.frames[q.n] = b
	q.n++
}

func (w *worker) enqueueAll(a *attachedPort, v []*frame.Buffer) {
	for _, b := range v {
		w.enqueue(a, b)
	}
}

// flush transmits all queues.
func (w *worker) flush() {
	for _, a := range w.pendingTx {
		w.transmit(a, &a.txQueues[w.id])
	}
	w.pendingTx = w.pendingTx[:0]
}

// transmit empties the queue of a port.
func (w *worker) transmit(a *attachedPort, q *txQueue) {
	v := q.frames[:q.n]
	q.n = 0
	w.transmitFrames(a, v)
	w.pool.Put(v)
}

// transmitFrames transmits frames on a port and counts them. The caller keeps the buffers.
func (w *worker) transmitFrames(a *attachedPort, v []*frame.Buffer) {
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

// punt copies a frame to the slow path, or drops it if the ring is full.
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

// takeInjected sends the frames of the slow path.
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
		w.apply(in, b, d)
	}
	if some {
		w.flush()
	}
	return some
}

// injected decides on a frame of the slow path, and returns the interface that it belongs to.
func (w *worker) injected(m *slow.Message, b *frame.Buffer) (verdict, *iface) {
	if m.Reason == slow.Output {
		out := w.snapshot.iface(m.Out)
		if out == nil || !out.up {
			return verdict{drop: dropOutputDown}, nil
		}
		return outputVerdict(out, b), out
	}
	in := w.snapshot.iface(m.Interface)
	if in == nil {
		return verdict{drop: dropInterfaceDown}, nil
	}
	return w.originate(in, b), in
}

// originate routes a packet of the dataplane as if it had been received on in. It never causes an ICMP error.
func (w *worker) originate(in *iface, b *frame.Buffer) verdict {
	var out *iface
	var target netip.Addr
	raw := b.Bytes()[frame.EthernetLen:]
	if frame.Ethernet(b.Bytes()).Type() == frame.TypeIPv4 {
		p := frame.IPv4(raw)
		out, target, _ = resolveRoute(w.snapshot, in.fib4, p.Destination(), p)
	} else {
		p := frame.IPv6(raw)
		out, target, _ = resolveRoute(w.snapshot, in.fib6, p.Destination(), p)
	}
	if out == nil {
		return verdict{drop: dropOwnNoRoute}
	}
	return w.rewrite(out, target, b)
}

// completeOffloads does what the port's offloads do not cover: it completes the checksum, or sends the segments of a GSO frame.
// It returns false if the frame itself must not be sent, and the reason if that is a drop.
func (w *worker) completeOffloads(a *attachedPort, b *frame.Buffer) (r reason, still bool) {
	switch {
	case supportsOffload(a.offload, &b.Virtio):
		return noDrop, true
	case b.Virtio.IsGSO():
		return w.sendSegments(a, b), false
	case frame.Complete(b.Bytes(), &b.Virtio):
		return noDrop, true
	}
	return dropVirtio, false
}

// supportsOffload reports whether a port completes the checksum or segmentation of a frame.
func supportsOffload(o port.Offload, v *frame.Virtio) bool {
	switch v.GSOType &^ frame.GSOECN {
	case frame.GSONone:
		return o.Checksum
	case frame.GSOUDP:
		return o.UDP
	}
	return o.TCP
}

func (w *worker) sendSegments(a *attachedPort, b *frame.Buffer) reason {
	s, ok := frame.NewSegmenter(b.Bytes(), b.Virtio)
	if !ok {
		return dropVirtio
	}
	return w.sendPieces(s.Next, func(piece *frame.Buffer) { w.enqueue(a, piece) })
}

// sendFragments sends a packet in fragments of an MTU.
func (w *worker) sendFragments(out *iface, b *frame.Buffer, mtu int) reason {
	if !frame.Complete(b.Bytes(), &b.Virtio) {
		return dropVirtio
	}
	f, ok := frame.NewFragmenter(b.Bytes(), mtu)
	if !ok {
		return dropFragment4
	}
	return w.sendPieces(f.Next, func(piece *frame.Buffer) { w.send(out, piece) })
}

// sendPieces sends the pieces that next writes, each in its own buffer, until next returns 0.
func (w *worker) sendPieces(next func(room []byte) int, send func(piece *frame.Buffer)) reason {
	for {
		piece := w.newBuffer()
		if piece == nil {
			return dropNoBuffer
		}
		n := next(piece.Room())
		if piece.SetLen(n); n == 0 {
			piece.Release()
			return noDrop
		}
		send(piece)
	}
}

// newBuffer returns an empty buffer, or nil. It flushes the transmit queues if the pool is empty.
func (w *worker) newBuffer() *frame.Buffer {
	if b := w.pool.One(); b != nil {
		return b
	}
	w.flush()
	return w.pool.One()
}

// outputVerdict sends an IP packet on out, in fragments if it exceeds the MTU and may be fragmented.
func outputVerdict(out *iface, b *frame.Buffer) verdict {
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
