package forward

import (
	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/slow"
)

// verdict is what becomes of a frame: dropped, handed to the slow path (both, where the sender is to be told), or sent on
// out, in fragments where mtu is set. A punt of an unresolved frame has its next hop in the worker's unresolved. Its four
// fields stay in registers: with a fifth each function on a frame's way wrote them to memory piece by piece and read them
// back whole, for which the processor waited five nanoseconds each time.
type verdict struct {
	out  *iface
	mtu  uint32
	drop reason
	punt slow.Reason
}

// manner tells a reader of Trace what a verdict does not say.
type manner uint8

const (
	byFlood manner = iota + 1 // out is the last of those it was sent on, if any
	byBVI                     // handed to the slow path by the BVI
)

// receive takes a vector from a queue, decides on each frame, and sends what is to be sent. It returns how many there were, and
// whether there may be more.
func (w *worker) receive(i *inlet) (n int, more bool) {
	a := i.of
	if a.failure.Load() != nil {
		return 0, false
	}
	v := w.forVector(i.burst)
	n, err := i.Receive(v)
	if err != nil {
		a.fail(err)
	}
	if a.shared != nil {
		if faults := a.shared.Faults(); faults > 0 {
			w.drops[dropDescriptor].Add(faults)
		}
	}
	if n == 0 {
		return 0, false
	}
	more = n == len(v)
	// What was answered before these frames were sent holds for them: a client may send as soon as its route is confirmed.
	w.snapshot = w.engine.live.Load()
	used := n - w.vector(i, v[:n])
	if a.shared != nil {
		a.shared.Done()
	}
	if used > 0 {
		w.refill(used)
	}
	w.turnEnds(i, n)
	return n, more
}

// vector decides on received frames and sends them. It returns how many buffers, all or none, are the caller's again.
func (w *worker) vector(from *inlet, v []*frame.Buffer) int {
	in := w.snapshot.iface(from.of.index)
	w.ways.begin(w.snapshot)
	s, short := w.shortcut(in)
	var tally vectorTally
	var run *attachment // where the frames from start on go, which are in no queue yet
	start := 0
	for n, b := range v {
		// Of a long vector the first frames' lines would be overwritten.
		line := &w.untraced
		if len(v)-n <= traceDepth {
			line = from.trace.begin(b)
		}
		tally.bytes += uint64(b.Len())
		kind := b.EthernetType()
		if short && s.take(b) {
			line.result, line.how = verdict{out: s.out}, 0
			tally.count(kind)
			if s.exit != run {
				w.enqueueAll(run, v[start:n])
				run, start = s.exit, n
			}
			continue
		}
		w.enqueueAll(run, v[start:n])
		run, start = nil, n+1
		s.target = 0 // the long way may learn that it has moved
		w.how = 0
		d := w.input(in, b)
		line.result, line.how = d, w.how
		tally.add(b, d)
		w.dispose(in, b, d)
	}
	if in != nil && len(v) > 0 {
		tally.publish(in.counters[w.id], len(v))
	}
	if run != nil && start == 0 {
		// All go the same way: straight there, in the buffers that the next frames come into.
		w.transmitFrames(run, v)
		frame.Reset(v)
		return len(v)
	}
	w.enqueueAll(run, v[start:])
	w.flush()
	return 0
}

// dispose ends the worker's care for a frame.
func (w *worker) dispose(in *iface, b *frame.Buffer, d verdict) {
	if d.drop != kept {
		w.drops[d.drop].Add(1)
	}
	if d.punt != 0 {
		w.punt(in, b, d)
	}
	if d.out == nil || d.punt != 0 {
		b.Release()
		return
	}
	if d.mtu != 0 {
		w.lose(b, w.sendFragments(d.out, b, int(d.mtu)))
		return
	}
	w.send(d.out, b)
}

// input decides on a received frame by its Ethernet header.
func (w *worker) input(in *iface, b *frame.Buffer) verdict {
	if in == nil || !in.up {
		return verdict{drop: dropInterfaceDown}
	}
	if b.Virtio.NeedsChecksum() && (b.Len() < frame.EthernetLen || !b.Virtio.Sound(b.Bytes())) {
		return verdict{drop: dropVirtio}
	}
	if in.senders != nil && !in.senders.admits(b.Bytes()) {
		return verdict{drop: aclMiss(in, b)}
	}
	if in.acl != nil {
		if drop := in.acl.refuses(in, b.Bytes()); drop != kept {
			return verdict{drop: drop}
		}
	}
	if in.l2.slot != 0 {
		return w.bridged(in, b)
	}
	e, err := frame.ParseEthernet(b.Bytes())
	if err != nil {
		return verdict{drop: dropShortEthernet}
	}
	return w.layer3(in, b, e)
}

// layer3 decides on a frame for the routing on in.
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

// notForUs tells a stray frame from the multicast that every link has.
func notForUs(m frame.MAC) reason {
	if m.IsMulticast() {
		return dropMulticast4
	}
	return dropDestinationMAC
}
