package forward

import (
	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/slow"
)

// verdict is the decision on a frame: it is dropped, punted to the slow path (both, if the sender is to get an ICMP
// error) or sent, in fragments if mtu is set. worker.unresolved is the next hop of a frame that is punted as
// unresolved. The four fields stay in registers. With a fifth, each function wrote them to memory piecewise and read
// them back as a whole, a store-forwarding stall of five nanoseconds each.
type verdict struct {
	out  *iface
	mtu  uint32
	drop reason
	punt slow.Reason
}

// traceDetail is what Trace reports beyond the verdict.
type traceDetail uint8

const (
	detailFlooded     traceDetail = iota + 1 // out is the last of the members it was sent to, if any
	detailPuntedByBVI                        // punted on the BVI
	detailKept                               // a fragment that waits for the others
)

// receive receives a vector from a queue, decides on each frame and sends it. It returns the number of frames, and
// whether more may wait.
func (w *worker) receive(i *rxQueue) (n int, more bool) {
	a := i.port
	if a.failure.Load() != nil {
		return 0, false
	}
	v := w.buffers.forVector(i.burst)
	n, err := i.Receive(v)
	if err != nil {
		a.fail(err)
	}
	if a.shared != nil {
		if faults := a.shared.Faults(); faults > 0 {
			w.drops[dropDescriptor].Add(faults)
		}
	}
	if a.socket != nil {
		if lost := a.socket.Inexpressible(); lost > 0 {
			w.drops[dropSegmentation].Add(lost)
		}
	}
	if n == 0 {
		return 0, false
	}
	more = n == len(v)
	// Use every change that control confirmed before these frames were sent: a client may send as soon as its route is
	// confirmed.
	w.snapshot = w.engine.live.Load()
	used := n - w.vector(i, v[:n])
	if a.shared != nil {
		a.shared.Done()
	}
	if used > 0 {
		w.buffers.refill(used)
	}
	w.rx.endTurn(i, n)
	w.load.received(n)
	return n, more
}

// vector decides on received frames and sends them. It returns how many buffers the caller may reuse: all or none.
func (w *worker) vector(from *rxQueue, v []*frame.Buffer) int {
	in := w.snapshot.iface(from.port.index)
	if in != nil && in.mirrors != nil {
		w.tx.mirror.copyAll(in, in.mirrors.rx, v)
	}
	w.timed = false
	if w.tracing != nil && w.tracing.wants(from.port) {
		return w.tracedVector(from, in, v)
	}
	w.routes.use(w.snapshot)
	s, short := w.fastPath(in)
	var limit *Policer
	if in != nil {
		limit = in.policeIn
	}
	var tally vectorTally
	var run *attachedPort // output port of the frames from start on, which are in no queue yet
	start := 0
	for n, b := range v {
		// In a long vector the lines of the first frames would be overwritten.
		line := &w.untracedLine
		if len(v)-n <= traceDepth {
			line = from.trace.begin(b)
		}
		tally.bytes += uint64(b.Len())
		kind := b.EthernetType()
		var policed reason
		if limit != nil && !w.police(limit, in, b, dropPolicerInput) {
			policed = dropPolicerInput
		}
		if short && policed == noDrop && s.tryForward(b) && s.conforms(b) {
			line.result = verdict{out: s.out}
			line.detail = 0
			tally.count(kind)
			if s.port != run {
				w.tx.enqueueAll(run, v[start:n])
				run = s.port
				start = n
			}
			continue
		}
		w.tx.enqueueAll(run, v[start:n])
		run = nil
		start = n + 1
		s.target = 0 // the full path may learn that the MAC has moved
		w.detail = 0
		d := verdict{drop: policed}
		switch {
		case s.exceeded:
			s.exceeded = false
			d.drop = dropPolicerOutput
		case policed == noDrop:
			d = w.egress(b, w.input(in, b))
		}
		line.result = d
		line.detail = w.detail
		tally.add(b, d)
		w.apply(in, b, d)
	}
	if in != nil && len(v) > 0 {
		tally.publish(in.counters[w.id], len(v))
	}
	if run != nil && start == 0 {
		// All frames leave through one port: transmit them from the receive buffers, without a queue.
		w.tx.transmitFrames(run, v)
		frame.Reset(v)
		return len(v)
	}
	w.tx.enqueueAll(run, v[start:])
	w.tx.flush()
	return 0
}

// apply executes the verdict on a frame and releases the buffer, unless it is queued.
func (w *worker) apply(in *iface, b *frame.Buffer, d verdict) {
	if w.path != nil {
		w.path.ending(d)
	}
	if d.drop != noDrop {
		w.drops[d.drop].Add(1)
	}
	if d.punt != 0 {
		w.slow.punt(in, in, b, d)
	}
	if d.out == nil || d.punt != 0 {
		b.Release()
		return
	}
	if d.mtu != 0 {
		w.tx.discard(b, w.sendFragments(d.out, b, int(d.mtu)))
		return
	}
	w.send(d.out, b)
}

// input decides on a received frame by interface state, filters and Ethernet header.
func (w *worker) input(in *iface, b *frame.Buffer) verdict {
	if in == nil || !in.up {
		return verdict{drop: dropInterfaceDown}
	}
	if b.Virtio.NeedsChecksum() && (b.Len() < frame.EthernetLen || !b.Virtio.ChecksumIsSafe(b.Bytes())) {
		return verdict{drop: dropVirtio}
	}
	if in.subs != nil {
		to, drop := w.snapshot.receiver(in, b.Bytes())
		if drop != noDrop {
			return verdict{drop: drop}
		}
		if to != in {
			return w.inputSub(to, b)
		}
	}
	return w.filtered(in, b)
}

// filtered applies the filters of an interface to a received frame, and forwards it.
func (w *worker) filtered(in *iface, b *frame.Buffer) verdict {
	if in.macip != nil && !in.macip.permits(b.Bytes()) {
		return verdict{drop: aclMiss(in, b)}
	}
	if in.acl != nil {
		if drop := w.acl.verdict(in, inward, b.Bytes()); drop != noDrop {
			return verdict{drop: drop}
		}
	}
	if in.sub != nil {
		if in.l2.slot == 0 {
			return verdict{drop: dropUnknownVLAN}
		}
		for range in.sub.Pop {
			b.PopVLAN()
		}
	}
	if in.l2.slot != 0 {
		return w.l2.input(in, b)
	}
	e, err := frame.ParseEthernet(b.Bytes())
	if err != nil {
		return verdict{drop: dropShortEthernet}
	}
	return w.layer3(in, b, e)
}

// layer3 decides on a frame that interface in routes.
func (w *worker) layer3(in *iface, b *frame.Buffer, e frame.Ethernet) verdict {
	ours := e.Destination() == in.mac
	switch e.Type() {
	case frame.TypeIPv4:
		if !ours {
			return verdict{drop: notForUs(e.Destination())}
		}
		return w.ip4(in, b)
	case frame.TypeIPv6:
		if !ours && !e.Destination().IsMulticast() {
			return verdict{drop: dropDestinationMAC}
		}
		return w.ip6(in, b)
	case frame.TypeARP:
		if !ours && e.Destination() != frame.Broadcast {
			return verdict{drop: dropDestinationMAC}
		}
		if !in.ip4 {
			return verdict{drop: dropNoIP4}
		}
		return verdict{punt: slow.ARP}
	}
	return verdict{drop: dropEthernetType}
}

// notForUs returns the drop reason of an IPv4 frame with a foreign destination MAC.
func notForUs(m frame.MAC) reason {
	if m.IsMulticast() {
		return dropMulticast4
	}
	return dropDestinationMAC
}

// poolSize is the number of a worker's buffers: one vector to receive into and one in transmit queues.
const poolSize = 2 * frame.VectorSize

// bufferCache holds a worker's empty buffers.
type bufferCache struct {
	pool  *frame.Pool
	empty []*frame.Buffer // for the next vector, most recently used first
}

func newBufferCache() bufferCache {
	return bufferCache{
		pool:  frame.NewPool(frame.BufferSize, poolSize),
		empty: make([]*frame.Buffer, 0, frame.VectorSize),
	}
}

// forVector returns buffers for n frames, or fewer if the pool is short.
func (s *bufferCache) forVector(n int) []*frame.Buffer {
	if len(s.empty) < n {
		s.refill(0)
	}
	return s.empty[:min(n, len(s.empty))]
}

// refill replaces the first used buffers by those released last, which are still in the CPU cache. The pool may be
// short.
func (s *bufferCache) refill(used int) {
	got := s.pool.Take(s.empty[:used])
	if got < used {
		s.empty = s.empty[:got+copy(s.empty[got:], s.empty[used:])]
	}
	ready := len(s.empty)
	s.empty = s.empty[:frame.VectorSize]
	s.empty = s.empty[:ready+s.pool.Take(s.empty[ready:])]
}

// vectorTally counts a vector in registers; the shared counters are written once per vector.
type vectorTally struct {
	bytes, drops, punts, ip4, ip6 uint64
}

func (t *vectorTally) add(b *frame.Buffer, d verdict) {
	if d.drop != noDrop {
		t.drops++
	}
	if d.punt != 0 {
		t.punts++
	}
	t.count(b.EthernetType())
}

func (t *vectorTally) count(ethernetType uint16) {
	switch ethernetType {
	case frame.TypeIPv4:
		t.ip4++
	case frame.TypeIPv6:
		t.ip6++
	}
}

func (t *vectorTally) publish(c *counters, packets int) {
	c.rxPackets.Add(uint64(packets))
	c.rxBytes.Add(t.bytes)
	c.rxIP4.Add(t.ip4)
	c.rxIP6.Add(t.ip6)
	if t.drops > 0 {
		c.drops.Add(t.drops)
	}
	if t.punts > 0 {
		c.punts.Add(t.punts)
	}
}
