package forward

import "github.com/weftnet/weft/vswitch/frame"

// shortcut forwards the plain frames of a vector: those that need no more than a lookup and, between tables, a new
// header. It decides on the frame's head alone, so that a borrowed body is not copied before it is transmitted. Any
// other frame takes the long way, input, which decides the same for a plain frame.
//
// A shortcut lives for one vector. It may keep what it looked up, since snapshot, ports and MAC table change between
// vectors only.
type shortcut struct {
	w  *worker
	in *iface
	br *bridge // of in, or nil: in is routed

	source, target macKey // of a bridge: those of the frame before, which were looked up
	out            *iface // where the frame before went
	exit           *attachment
}

// shortcut returns that of a vector from in; false: all frames take the long way.
func (w *worker) shortcut(in *iface) (s shortcut, ok bool) {
	if in == nil || !in.up {
		return s, false
	}
	s = shortcut{w: w, in: in}
	if in.l2.slot == 0 {
		return s, in.ip4 && in.fib4 >= 0
	}
	s.br = w.snapshot.bridges[in.l2.slot]
	return s, s.br.forward
}

// take says that a frame goes to s.exit, ready to be sent; false: it takes the long way.
func (s *shortcut) take(b *frame.Buffer) bool {
	if b.Virtio.NeedsChecksum() || b.Virtio.IsGSO() || b.Len() < frame.EthernetLen {
		return false
	}
	h := b.Head()
	if s.in.senders != nil && !s.in.senders.admitsIPv4(h) {
		return false
	}
	if s.in.acl != nil && !s.in.acl.admitsPlain(h, b.Len()) {
		return false
	}
	if s.br != nil {
		return s.bridges(h)
	}
	return s.routes(b, h)
}

// leads makes out the way out; false: it has no port at work, or is down.
func (s *shortcut) leads(out *iface) bool {
	if out == s.out {
		return true
	}
	a := s.w.ports.at(out.index)
	if a == nil || a.failure.Load() != nil {
		return false
	}
	s.out, s.exit = out, a
	return true
}

// bridges says whether a frame that begins with h goes to s.exit. Its source is known then.
func (s *shortcut) bridges(h []byte) bool {
	target, source := macKeyAt(s.br.slot, h), macKeyAt(s.br.slot, h[6:])
	if source != s.source && s.br.learn {
		if !s.w.knows(s.br, s.in, source) {
			return false
		}
		s.source = source
	}
	if target == s.target {
		return true
	}
	out := s.member(target)
	if out == nil || !s.leads(out) {
		s.target = 0
		return false
	}
	s.target = target
	return true
}

// member finds the member of the bridge domain that frames to a MAC are sent to; nil: none, or not plainly.
func (s *shortcut) member(target macKey) *iface {
	if target.isMulticast() {
		return nil
	}
	f, known := s.w.whereIs(s.br, target)
	if !known || f.filter || f.out == s.in.index {
		return nil
	}
	out := s.w.snapshot.iface(f.out)
	if out == nil || !out.up || out.l2.bvi || out.l2.slot != s.in.l2.slot ||
		out.l2.splitHorizon != 0 && out.l2.splitHorizon == s.in.l2.splitHorizon {
		return nil
	}
	return out
}
