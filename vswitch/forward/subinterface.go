package forward

import (
	"maps"

	"github.com/weftnet/weft/vswitch/frame"
)

// Sub makes an interface a sub-interface: it receives the frames of its parent that have its tags, and sends frames by
// its parent. It forwards only in a bridge domain.
type Sub struct {
	Parent uint32 // an interface with a port
	Tags   TagMatch
	Pop    int // number of tags to remove from received frames and to add to sent ones: 0, or all of Tags
}

// TagMatch says which frames a sub-interface receives: those with exactly these tags, as VPP's exact match.
type TagMatch struct {
	Rest  bool   // instead: the tagged frames that no other sub-interface receives
	AD    bool   // the outer tag is one of 802.1ad, otherwise of 802.1Q
	Outer uint16 // VLAN of the outer tag, 1 to 4094
	Inner uint16 // VLAN of the second tag, which is one of 802.1Q; 0: the frame has one tag
}

// tagKey is a TagMatch as a key; 0 is the key of no tags.
type tagKey uint32

const (
	tagKeyAD   tagKey = 1 << 24
	tagKeyRest tagKey = 1 << 25
)

func (m TagMatch) key() tagKey {
	if m.Rest {
		return tagKeyRest
	}
	k := tagKey(m.Outer&frame.VLANMask)<<12 | tagKey(m.Inner&frame.VLANMask)
	if m.AD {
		k |= tagKeyAD
	}
	return k
}

// subs are the sub-interfaces of an interface, by key. The map never changes.
type subs map[tagKey]uint32

// setSub replaces what makes an interface a sub-interface; nil removes it.
func (s *snapshot) setSub(i *iface, c *Sub) {
	if old := i.sub; old != nil && (c == nil || *old != *c) {
		s.editSubs(old.Parent, func(all subs) { delete(all, old.Tags.key()) })
	}
	i.sub = c
	if c == nil {
		return
	}
	own := *c
	i.sub = &own
	s.editSubs(own.Parent, func(all subs) { all[own.Tags.key()] = i.index })
}

// subsOf returns the sub-interfaces that exist before their parent, as after a restore.
func (s *snapshot) subsOf(parent uint32) (all subs) {
	for _, i := range s.interfaces {
		if i == nil || i.sub == nil || i.sub.Parent != parent {
			continue
		}
		if all == nil {
			all = subs{}
		}
		all[i.sub.Tags.key()] = i.index
	}
	return all
}

// editSubs changes the sub-interfaces of an interface, if it exists.
func (s *snapshot) editSubs(parent uint32, edit func(subs)) {
	p := s.iface(parent)
	if p == nil {
		return
	}
	next := *p
	next.subs = maps.Clone(p.subs)
	if next.subs == nil {
		next.subs = subs{}
	}
	edit(next.subs)
	if len(next.subs) == 0 {
		next.subs = nil
	}
	s.put(&next)
}

// receiver returns the interface that receives a frame of in, which has sub-interfaces: one of them, or in itself for
// frames without tags and, as a port of a bridge domain, for tags without a sub-interface. The order is VPP's. A frame
// of VLAN 0 has a priority and no VLAN; only a sub-interface for the rest matches it.
func (s *snapshot) receiver(in *iface, e frame.Ethernet) (*iface, reason) {
	outer, ok := e.Tag(0)
	if !ok {
		return in, noDrop
	}
	key := tagKeyOf(e, outer)
	index, found := in.subs[key]
	if key == 0 || !found {
		index, found = in.subs[tagKeyRest]
	}
	if !found {
		if key == 0 || in.l2.slot != 0 {
			return in, noDrop
		}
		return nil, dropUnknownVLAN
	}
	sub := s.iface(index)
	if sub == nil || !sub.up {
		return nil, dropInterfaceDown
	}
	return sub, noDrop
}

// tagKeyOf returns the key of the frame's tags: 0 for one tag of VLAN 0, and a key that no sub-interface has for more
// than two tags.
func tagKeyOf(e frame.Ethernet, outer frame.Tag) tagKey {
	m := TagMatch{AD: outer.Type == frame.TypeQinQ, Outer: outer.VLAN()}
	inner, hasInner := e.Tag(1)
	if !hasInner || inner.Type != frame.TypeVLAN {
		if m.Outer == 0 {
			return 0
		}
		return m.key()
	}
	m.Inner = inner.VLAN()
	if third, has := e.Tag(2); has && third.Type == frame.TypeVLAN || m.Inner == 0 {
		return ^tagKey(0)
	}
	return m.key()
}

// inputSub decides on a frame that a sub-interface receives, after its filters. As in VPP the filters see the tags, and
// the bridge domain does not.
func (w *worker) inputSub(sub *iface, b *frame.Buffer) verdict {
	c := sub.counters[w.id]
	c.rxPackets.Add(1)
	c.rxBytes.Add(uint64(b.Len()))
	if w.path != nil {
		w.path.add(traceStep{kind: stepSub, iface: sub.index})
	}
	d := w.filtered(sub, b)
	if d.drop != noDrop {
		c.drops.Add(1)
	}
	return d
}

// sendBySub sends a frame of a sub-interface by its parent, with its tags. The limit of the parent is one for all of
// its sub-interfaces.
func (w *worker) sendBySub(out *iface, b *frame.Buffer) {
	parent := w.snapshot.iface(out.sub.Parent)
	if parent == nil || !parent.up {
		w.tx.discard(b, dropOutputDown)
		return
	}
	out.sub.push(b)
	c := out.counters[w.id]
	c.txPackets.Add(1)
	c.txBytes.Add(uint64(b.Len()))
	w.sendPoliced(parent, b)
}

// push adds the tags that Pop removes.
func (s *Sub) push(b *frame.Buffer) {
	if s.Pop == 0 {
		return
	}
	if s.Tags.Inner != 0 {
		b.PushVLAN(frame.TypeVLAN, s.Tags.Inner)
	}
	outer := uint16(frame.TypeVLAN)
	if s.Tags.AD {
		outer = frame.TypeQinQ
	}
	b.PushVLAN(outer, s.Tags.Outer)
}
