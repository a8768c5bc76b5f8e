package forward

import (
	"net/netip"

	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/slow"
)

const (
	// puntOrder is the binary logarithm of the size of the rings to and from the slow path, in frames.
	puntOrder = 8
	// injectedBurst limits the frames from the slow path in a round.
	injectedBurst = 64
)

// slowLink connects a worker to the slow path.
type slowLink struct {
	w                *worker
	toSlow, fromSlow *slow.Ring[slow.Message]
}

// Each interface has a token bucket of frames to the slow path on each worker. All interfaces share its rings, so
// without it a pod that sends many packets with TTL 1 would keep them full, and the neighbour requests of other
// interfaces would be dropped.
const (
	puntRate  = 1 << 12 // frames a second
	puntBurst = 1 << puntOrder / 4
)

func newPuntBudgets(workers []*worker) []*budget {
	return newBudgets(workers, func(*worker) int { return puntBurst })
}

// allows takes a token of an interface.
func (s *slowLink) allows(sender *iface) bool {
	f := sender.punts[s.w.id]
	if f.tokens <= 0 {
		f.refill(s.w.stopwatch(), puntRate, puntBurst)
	}
	if f.tokens <= 0 {
		return false
	}
	f.tokens--
	return true
}

// punt copies a frame to the slow path, or drops it if the ring is full or the sender exceeds its rate.
func (s *slowLink) punt(in, sender *iface, b *frame.Buffer, d verdict) {
	if !s.allows(sender) {
		s.w.drops[dropPuntRate].Add(1)
		return
	}
	m := s.toSlow.Reserve()
	if m == nil {
		s.w.drops[dropSlowFull].Add(1)
		return
	}
	m.Fill(b.Bytes())
	m.Reason = d.punt
	m.Interface = in.index
	m.Virtio = b.Virtio
	m.MTU = int(d.mtu)
	m.Target = s.w.unresolved
	m.Out = NoInterface
	m.Sender = sender.index
	if d.out != nil {
		m.Out = d.out.index
	}
	s.toSlow.Commit()
	s.w.engine.slowBell.Ring()
}

// takeInjected sends the frames of the slow path.
func (s *slowLink) receive() bool {
	some := false
	s.w.timed = false
	for range injectedBurst {
		m := s.fromSlow.Peek()
		b := s.w.tx.pool.One()
		if m == nil || b == nil {
			if b != nil {
				b.Release()
			}
			break
		}
		some = true
		b.SetLen(copy(b.Room(), m.Bytes()))
		b.Virtio = m.Virtio
		d, in := s.injected(m, b)
		s.fromSlow.Advance()
		s.w.apply(in, b, s.w.egress(b, d))
	}
	if some {
		s.w.tx.flush()
	}
	return some
}

// injected decides on a frame of the slow path, and returns the interface that it belongs to.
func (s *slowLink) injected(m *slow.Message, b *frame.Buffer) (verdict, *iface) {
	if m.Reason == slow.Output {
		out := s.w.snapshot.iface(m.Out)
		if out == nil || !out.up {
			return verdict{drop: dropOutputDown}, nil
		}
		return ownVerdict(out, b), out
	}
	in := s.w.snapshot.iface(m.Interface)
	if in == nil {
		return verdict{drop: dropInterfaceDown}, nil
	}
	return s.originate(in, b), in
}

// originate routes a packet of the dataplane as if it had been received on in. It never causes an ICMP error.
func (s *slowLink) originate(in *iface, b *frame.Buffer) verdict {
	var out *iface
	var target netip.Addr
	raw := b.Bytes()[frame.EthernetLen:]
	if frame.Ethernet(b.Bytes()).Type() == frame.TypeIPv4 {
		p := frame.IPv4(raw)
		out, target, _ = resolveRoute(s.w.snapshot, in.fib4, p.Destination(), p)
	} else {
		p := frame.IPv6(raw)
		out, target, _ = resolveRoute(s.w.snapshot, in.fib6, p.Destination(), p)
	}
	if out == nil {
		return verdict{drop: dropOwnNoRoute}
	}
	d := s.w.rewrite(out, target, b)
	if d.punt == 0 {
		d = ownVerdict(out, b)
	}
	return d
}

// ownVerdict sends a packet of the dataplane on out, in fragments if it exceeds the MTU, also with IPv6.
func ownVerdict(out *iface, b *frame.Buffer) verdict {
	d := outputVerdict(out, b)
	if b.EthernetType() == frame.TypeIPv6 && b.Len() > frame.EthernetLen+out.mtu {
		d.mtu = uint32(out.mtu)
	}
	return d
}

// slowBackend gives the slow path access to the engine. The first worker sends the frames of the slow path.
type slowBackend struct{ e *Engine }

// Interface returns a published interface.
func (s slowBackend) Interface(index uint32) (slow.Interface, bool) {
	i := s.e.live.Load().iface(index)
	if i == nil {
		return slow.Interface{}, false
	}
	return slow.Interface{
		MAC:       i.mac,
		Addresses: i.addresses,
		LinkLocal: i.linkLocal,
		Up:        i.up,
		Proxied:   s.e.live.Load().proxied(i),
	}, true
}

// Neighbour returns a published neighbour, and whether it is static.
func (s slowBackend) Neighbour(index uint32, a netip.Addr) (frame.MAC, bool, bool) {
	i := s.e.live.Load().iface(index)
	if i == nil {
		return frame.MAC{}, false, false
	}
	n, ok := i.neighbour(a)
	if !ok {
		return frame.MAC{}, false, false
	}
	return n.mac, n.static, true
}

// Learned reports a resolved neighbour to control.
func (s slowBackend) Learned(index uint32, a netip.Addr, m frame.MAC) bool {
	return s.e.report(Event{Kind: NeighbourLearned, Interface: index, Addr: a, MAC: m})
}

// Inject reserves a frame in the first worker's ring.
func (s slowBackend) Inject() *slow.Message { return s.e.workers[0].slow.fromSlow.Reserve() }

// Injected wakes the first worker.
func (s slowBackend) Injected() {
	s.e.workers[0].slow.fromSlow.Commit()
	s.e.workers[0].bell.Ring()
}
