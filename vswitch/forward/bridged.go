package forward

import "github.com/weftnet/weft/vswitch/frame"

// bridged decides on a frame that was received in a bridge domain. Whatever it carries, VLAN tags too, passes untouched.
func (w *worker) bridged(in *iface, b *frame.Buffer) verdict {
	raw := b.Bytes()
	if len(raw) < frame.EthernetLen {
		return verdict{drop: dropShortEthernet}
	}
	if !b.Virtio.Fits(b.Len()) {
		return verdict{drop: dropVirtio}
	}
	br := w.snapshot.bridges[in.l2.slot]
	if br.learn {
		if drop := w.learn(br, in, macKeyAt(br.slot, raw[6:])); drop != kept {
			return verdict{drop: drop}
		}
	}
	return w.relay(br, in, b)
}

// relay sends a frame on in its bridge domain; in is where it came from, which may be the BVI.
func (w *worker) relay(br *bridge, in *iface, b *frame.Buffer) verdict {
	to := macKeyAt(br.slot, b.Bytes())
	if to.isMulticast() {
		if !br.flood {
			return verdict{drop: dropNotBridged}
		}
		return w.flood(br, in, b)
	}
	if !br.forward {
		if !br.uFlood && !br.flood {
			return verdict{drop: dropNotBridged}
		}
		return w.flood(br, in, b)
	}
	f, known := w.whereIs(br, to)
	switch {
	case known && f.filter:
		return verdict{drop: dropFilter}
	case known:
		return w.unicast(in, f.out, b)
	case br.uFlood:
		return w.flood(br, in, b)
	}
	return verdict{drop: dropUnknownMAC}
}

// unicast sends a frame to one member.
func (w *worker) unicast(in *iface, index uint32, b *frame.Buffer) verdict {
	if index == in.index {
		return verdict{drop: dropReflected}
	}
	out := w.snapshot.iface(index)
	if out == nil || out.l2.slot != in.l2.slot {
		return verdict{drop: dropNoMember}
	}
	if out.l2.bvi {
		return w.toBVI(out, b)
	}
	if !out.up {
		return verdict{drop: dropOutputDown}
	}
	if out.l2.splitHorizon != 0 && out.l2.splitHorizon == in.l2.splitHorizon {
		return verdict{drop: dropSplitHorizon}
	}
	return verdict{out: out}
}

// flood sends a frame to all members but the one it came from and those of its split-horizon group. The BVI comes last: layer 3
// may change the frame.
func (w *worker) flood(br *bridge, in *iface, b *frame.Buffer) verdict {
	if !w.mayFlood(in) {
		return verdict{drop: dropStorm}
	}
	var last *iface
	receivers := 0
	for _, m := range br.members {
		out := w.snapshot.iface(m.Interface)
		if out == nil || out == in || !out.up || out.l2.slot != br.slot || out.l2.bvi {
			continue
		}
		if in.l2.splitHorizon != 0 && in.l2.splitHorizon == out.l2.splitHorizon {
			continue
		}
		if last != nil {
			w.replicate(last, b)
		}
		last = out
		receivers++
	}
	w.payFlood(in, receivers)
	if bvi := w.floodedBVI(br, in, b); bvi != nil {
		return w.floodBVI(bvi, last, b)
	}
	if last == nil {
		return verdict{drop: dropNoMembers}
	}
	w.drops[noteFlooded].Add(1)
	w.how = byFlood
	return verdict{out: last}
}

// replicate sends a copy.
func (w *worker) replicate(out *iface, b *frame.Buffer) {
	c := w.spare()
	if c == nil {
		w.drops[dropReplication].Add(1)
		return
	}
	c.SetLen(copy(c.Room(), b.Bytes()))
	c.Virtio = b.Virtio
	w.send(out, c)
}
