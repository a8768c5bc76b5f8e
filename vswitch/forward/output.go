package forward

import (
	"net/netip"

	"github.com/weftnet/weft/vswitch/frame"
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
