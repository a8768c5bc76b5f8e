package slow

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"github.com/weftnet/weft/vswitch/frame"
)

// Limits of the reassembly of packets to the dataplane's own addresses. The memory of a sender is at most
// maxReassemblies messages. VPP has one limit for all senders, 1024 packets, and permits three fragments.
const (
	maxReassemblies = 8  // of a sender; the oldest one makes room for the next
	maxFragments    = 16 // of a packet
	reassemblyTime  = 2 * time.Second
)

// fragmentKey identifies the fragments of a packet (RFC 791 3.2, RFC 8200 4.5), and the interface.
type fragmentKey struct {
	iface               uint32
	source, destination netip.Addr
	protocol            uint8 // 0 for IPv6, where the first fragment alone decides
	identification      uint32
}

// fragment is a fragment of a packet. Its slices belong to the message.
type fragment struct {
	key    fragmentKey
	head   []byte // the frame before the data, without a fragment header
	offset int    // of the data in the packet's payload
	data   []byte
	more   bool
}

func (f *fragment) end() int { return f.offset + len(f.data) }

// piece is the data of a fragment.
type piece struct {
	offset int
	data   []byte
}

// reassembly is a packet of which fragments are missing.
type reassembly struct {
	key      fragmentKey
	deadline time.Time
	head     []byte  // of the first fragment, once it is there
	pieces   []piece // by offset, without overlaps
	received int     // bytes in pieces
	total    int     // length of the payload; 0: the last fragment is missing
	failed   bool    // what follows is dropped
}

// reassembler has the reassemblies of each sender, oldest first: a pod that sends fragments without end displaces only
// its own.
type reassembler struct {
	senders map[uint32][]*reassembly
	due     time.Time // when the next one expires; zero: no reassembly
	whole   Message   // the last packet that was completed
}

// fragmentOf returns the fragment in m; false if the packet is whole, or no IP packet.
func fragmentOf(m *Message) (f fragment, ok bool) {
	raw := m.Bytes()
	const at = frame.EthernetLen
	if frame.Ethernet(raw).Type() == frame.TypeIPv4 {
		p, err := frame.ParseIPv4(raw[at:])
		if err != nil || !p.IsFragment() {
			return f, false
		}
		id := binary.BigEndian.Uint16(p[4:])
		f.key = fragmentKey{m.Interface, p.Source(), p.Destination(), p.Protocol(), uint32(id)}
		f.head = raw[:at+p.HeaderLen()]
		f.offset = int(p.FragmentOffset()) * 8
		f.data = p.Payload()
		f.more = p.MoreFragments()
		return f, true
	}
	p, err := frame.ParseIPv6(raw[at:])
	if err != nil {
		return f, false
	}
	h, ok := p.Fragment()
	if !ok {
		return f, false
	}
	f.key = fragmentKey{
		iface:          m.Interface,
		source:         p.Source(),
		destination:    p.Destination(),
		identification: h.Identification,
	}
	p[h.NextField] = h.Protocol // without the fragment header
	f.head = raw[:at+h.At]
	f.offset = h.Offset
	f.data = p[h.At+frame.FragmentLen:]
	f.more = h.More
	return f, true
}

// add adds a fragment. It returns the packet if that is complete, valid until the next call, or the cause of a drop;
// neither of them if fragments are missing.
func (r *reassembler) add(m *Message, f fragment, now time.Time) (whole *Message, c cause, dropped bool) {
	p, c, dropped := r.find(m.Sender, f.key, now)
	if p.failed {
		return nil, fragmentRefused, true
	}
	if bad, failed := p.take(f); failed {
		p.failed = true
		p.head = nil
		p.pieces = nil
		return nil, bad, true
	}
	if p.total == 0 || p.received != p.total {
		return nil, c, dropped
	}
	r.remove(m.Sender, p)
	return r.join(m, p), c, dropped
}

// find returns the reassembly of a packet, or a new one, which may displace one of the same sender.
func (r *reassembler) find(sender uint32, k fragmentKey, now time.Time) (p *reassembly, c cause, displaced bool) {
	list := r.senders[sender]
	if n := slices.IndexFunc(list, func(p *reassembly) bool { return p.key == k }); n >= 0 {
		return list[n], 0, false
	}
	if len(list) >= maxReassemblies {
		displaced = !list[0].failed
		list = slices.Delete(list, 0, 1)
	}
	p = &reassembly{key: k, deadline: now.Add(reassemblyTime)}
	r.senders[sender] = append(list, p)
	if r.due.IsZero() {
		r.due = p.deadline
	}
	return p, reassembliesFull, displaced
}

func (r *reassembler) remove(sender uint32, p *reassembly) {
	list := slices.DeleteFunc(r.senders[sender], func(other *reassembly) bool { return other == p })
	if r.senders[sender] = list; len(list) == 0 {
		delete(r.senders, sender)
	}
}

// take adds a fragment's data, or returns why the packet is refused. A copy of a fragment has no effect; fragments that
// overlap otherwise refuse the packet in both families (RFC 5722, RFC 8200 4.5).
func (p *reassembly) take(f fragment) (c cause, failed bool) {
	switch {
	case len(f.data) == 0, f.more && len(f.data)%8 != 0, !f.more && p.total != 0 && p.total != f.end(),
		p.total != 0 && f.end() > p.total:
		return badFragment, true
	case len(f.head)+f.end() > MessageSize:
		return truncated, true
	}
	n, found := slices.BinarySearchFunc(p.pieces, f.offset, func(x piece, at int) int { return x.offset - at })
	switch {
	case found && len(p.pieces[n].data) == len(f.data):
		return 0, false
	case found, n < len(p.pieces) && f.end() > p.pieces[n].offset,
		n > 0 && p.pieces[n-1].offset+len(p.pieces[n-1].data) > f.offset:
		return overlappingFragments, true
	case len(p.pieces) == maxFragments:
		return manyFragments, true
	case !f.more && n < len(p.pieces):
		return badFragment, true
	}
	p.pieces = slices.Insert(p.pieces, n, piece{f.offset, slices.Clone(f.data)})
	p.received += len(f.data)
	if f.offset == 0 {
		p.head = slices.Clone(f.head)
	}
	if !f.more {
		p.total = f.end()
	}
	if len(p.head)+p.total > MessageSize { // the header of the first fragment may be the longest
		return truncated, true
	}
	return 0, false
}

// join makes a message of a complete packet.
func (r *reassembler) join(m *Message, p *reassembly) *Message {
	w := &r.whole
	w.Reason = m.Reason
	w.Interface = m.Interface
	w.Sender = m.Sender
	w.Out = m.Out
	w.Target = m.Target
	w.MTU = m.MTU
	w.Virtio = frame.Virtio{}
	n := copy(w.Room(), p.head)
	for _, x := range p.pieces {
		n += copy(w.Room()[n:], x.data)
	}
	w.SetLen(n)
	packet := w.Bytes()[frame.EthernetLen:]
	if p.key.source.Is4() {
		frame.IPv4(packet).SetWhole()
	} else {
		frame.IPv6(packet).SetWhole()
	}
	return w
}

// expire discards the expired reassemblies and returns their number.
func (r *reassembler) expire(now time.Time) (n uint64) {
	if r.due.IsZero() || now.Before(r.due) {
		return 0
	}
	r.due = time.Time{}
	for sender, list := range r.senders {
		for len(list) > 0 && !now.Before(list[0].deadline) {
			if !list[0].failed {
				n++
			}
			list = slices.Delete(list, 0, 1)
		}
		if r.senders[sender] = list; len(list) == 0 {
			delete(r.senders, sender)
			continue
		}
		r.due = earlier(r.due, list[0].deadline)
	}
	return n
}

// earlier returns the earlier of two times; a zero time does not count.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// reassemble handles a fragment to the dataplane itself, and the packet that it completes.
func (p *Path) reassemble(m *Message, f fragment, now time.Time) {
	whole, c, dropped := p.fragments.add(m, f, now)
	if dropped {
		p.drop(c)
	}
	if whole != nil {
		p.receivedWhole(whole, now)
	}
}
