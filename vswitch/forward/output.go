package forward

import (
	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/port"
)

// txQueues collect the frames that a worker transmits at the end of a vector.
type txQueues struct {
	*view
	pool    *frame.Pool
	pending []*attachedPort // ports with queued frames
	mirror  mirrorer
}

// send queues a frame for transmission at the end of the vector.
func (w *worker) send(out *iface, b *frame.Buffer) {
	if w.path != nil {
		w.path.add(traceStep{kind: stepSend, iface: out.index})
	}
	a := w.ports.at(out.index)
	if a == nil || a.failure.Load() != nil {
		w.sendInside(out, b)
		return
	}
	if b.Virtio.IsGSO() || b.Virtio.NeedsChecksum() {
		if r, still := w.tx.completeOffloads(a, b); !still {
			w.tx.discard(b, r)
			return
		}
	}
	w.tx.enqueue(a, b)
}

// sendInside sends a frame to an interface without a port: a BVI, a tunnel or a sub-interface.
func (w *worker) sendInside(out *iface, b *frame.Buffer) {
	switch {
	case out.l2.bvi:
		w.l2.fromBVI(out, b)
	case out.tunnel != nil:
		w.vtep.encapsulate(out, b)
	case out.sub != nil:
		w.sendBySub(out, b)
	default:
		w.tx.discard(b, dropNoPort)
	}
}

// discard releases a frame, and counts a drop unless r is noDrop.
func (t *txQueues) discard(b *frame.Buffer, r reason) {
	if r != noDrop {
		t.countDrop(r)
	}
	b.Release()
}

func (t *txQueues) countDrop(r reason) {
	t.drops[r].Add(1)
	if t.path != nil {
		t.path.add(traceStep{kind: stepDrop, number: uint32(r)})
	}
}

// enqueue appends a complete frame to the queue of a port.
func (t *txQueues) enqueue(a *attachedPort, b *frame.Buffer) {
	q := &a.txQueues[t.id]
	if q.n == len(q.frames) {
		t.transmit(a, q)
	}
	if q.n == 0 {
		t.pending = append(t.pending, a)
	}
	q.frames[q.n] = b
	q.n++
}

func (t *txQueues) enqueueAll(a *attachedPort, v []*frame.Buffer) {
	for _, b := range v {
		t.enqueue(a, b)
	}
}

// flush transmits all queues.
func (t *txQueues) flush() {
	for _, a := range t.pending {
		t.transmit(a, &a.txQueues[t.id])
	}
	t.pending = t.pending[:0]
}

// transmit empties the queue of a port.
func (t *txQueues) transmit(a *attachedPort, q *txQueue) {
	v := q.frames[:q.n]
	q.n = 0
	t.transmitFrames(a, v)
	t.pool.Put(v)
}

// transmitFrames transmits frames on a port and counts them. The caller keeps the buffers.
func (t *txQueues) transmitFrames(a *attachedPort, v []*frame.Buffer) {
	out := t.snapshot.iface(a.index)
	if out != nil && out.mirrors != nil {
		t.mirror.copyAll(out, out.mirrors.tx, v)
	}
	sent, err := a.port.Transmit(v)
	if err != nil {
		a.fail(err)
	}
	size := 0
	for _, b := range v {
		size += b.Len()
	}
	if out == nil {
		return
	}
	c := out.counters[t.id]
	c.txPackets.Add(uint64(sent))
	c.txBytes.Add(uint64(size))
	if refused := len(v) - sent; refused > 0 {
		c.txErrors.Add(uint64(refused))
		if a.shared != nil {
			t.drops[dropNoSlot].Add(uint64(refused))
		}
	}
}

// completeOffloads does the work that the port's offloads do not cover: it completes the checksum, or sends the
// segments of a GSO frame. It returns false if the frame itself must not be sent, and the reason if that is a drop.
func (t *txQueues) completeOffloads(a *attachedPort, b *frame.Buffer) (r reason, still bool) {
	switch {
	case supportsOffload(a.offload, &b.Virtio) && !b.Virtio.IsEncapsulated(b.Bytes()):
		return noDrop, true
	case b.Virtio.IsGSO():
		return t.enqueueSegments(a, b), false
	case frame.Complete(b.Bytes(), &b.Virtio):
		return noDrop, true
	}
	return dropVirtio, false
}

// supportsOffload reports whether a port completes the checksum or segmentation of a frame.
func supportsOffload(o port.Offload, v *frame.Virtio) bool {
	switch v.GSOType &^ frame.GSOECN {
	case frame.GSONone:
		return o.Checksum && !v.NeedsCRC()
	case frame.GSOUDP:
		return o.UDP
	}
	return o.TCP
}

func (t *txQueues) enqueueSegments(a *attachedPort, b *frame.Buffer) reason {
	s, ok := frame.NewSegmenter(b.Bytes(), b.Virtio)
	if !ok {
		return dropVirtio
	}
	return t.sendPieces(s.Next, func(piece *frame.Buffer) { t.enqueue(a, piece) })
}

// sendFragments sends a packet in fragments of an MTU.
func (w *worker) sendFragments(out *iface, b *frame.Buffer, mtu int) reason {
	if !frame.Complete(b.Bytes(), &b.Virtio) {
		return dropVirtio
	}
	f, ok := frame.NewFragmenter(b.Bytes(), mtu)
	if b.EthernetType() == frame.TypeIPv6 {
		w.fragmentID++
		f, ok = frame.NewFragmenter6(b.Bytes(), mtu, w.fragmentID)
	}
	if !ok {
		return dropFragment4
	}
	return w.tx.sendPieces(f.Next, func(piece *frame.Buffer) { w.sendPoliced(out, piece) })
}

// sendPoliced sends a frame, which no verdict is about, if it conforms to the policer of its output interface.
func (w *worker) sendPoliced(out *iface, b *frame.Buffer) {
	if p := out.policeOut; p != nil && !w.police(p, out, b, dropPolicerOutput) {
		w.tx.discard(b, dropPolicerOutput)
		return
	}
	w.send(out, b)
}

// sendPieces sends the pieces that next writes, each in its own buffer, until next returns 0.
func (t *txQueues) sendPieces(next func(room []byte) int, send func(piece *frame.Buffer)) reason {
	for {
		piece := t.newBuffer()
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
func (t *txQueues) newBuffer() *frame.Buffer {
	if b := t.pool.One(); b != nil {
		return b
	}
	t.flush()
	return t.pool.One()
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
