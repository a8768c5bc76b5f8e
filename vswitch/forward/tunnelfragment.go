package forward

import (
	"encoding/binary"
	"time"

	"github.com/weftnet/weft/vswitch/frame"
)

// Limits of the reassembly of tunnel packets, which routers fragment where the path between two nodes has a smaller MTU
// than their network cards. The fragments of a packet reach the same worker: kernels and network cards distribute them
// by their addresses, because later ones have no ports.
const (
	maxTunnelPacket = frame.JumboSize // bytes of a packet behind its IP header
	heldPackets     = 64              // of a worker; the oldest one makes room for the next
	heldOfPeer      = 16              // of these from one end of tunnels, so that it displaces only its own
	maxTunnelPieces = 16              // fragments of a packet

	// fragmentsWait is shorter than elsewhere: a fast sender uses an identification of IPv4 again after less than a
	// second, and the fragments of two packets must not be joined (RFC 4963).
	fragmentsWait = 500 * time.Millisecond
)

// tunnelFragment is a fragment of a UDP packet from the end of a tunnel.
type tunnelFragment struct {
	ends           tunnelKey // the addresses and the table
	identification uint32
	offset         int    // of the data in the packet's payload
	data           []byte // in the frame
	more           bool
	wanted         bool // by another receiver, such as a kernel, unless it is one of a tunnel packet
}

// heldPacket is a packet of which fragments are missing.
type heldPacket struct {
	ends           tunnelKey
	identification uint32
	deadline       time.Duration // by the stopwatch; zero: the place is free
	state          heldState
	pieces         [maxTunnelPieces][2]int // begin and end, in the order of arrival
	n              int                     // of pieces
	received       int                     // bytes
	total          int                     // length of the payload; 0: the last fragment is missing
}

// heldState is the knowledge about a held packet.
//
//	unknown --first fragment--> tunnelled --all fragments--> (free)
//	   |                  `---> foreign: its fragments are those of another receiver
//	   `--bad fragment--> refused: so are the others; foreign, if there is another receiver
type heldState uint8

const (
	heldUnknown heldState = iota
	heldTunnelled
	heldForeign
	heldRefused
)

// fate is what becomes of a fragment.
type fate uint8

const (
	fragmentPasses    fate = iota // it may belong to another receiver, who gets it
	fragmentKept                  // the packet is incomplete
	fragmentDropped               // the packet is refused
	fragmentCompletes             // the frame is the whole packet now
)

// fragments holds the incomplete tunnel packets of a worker. It does not allocate.
type fragments struct {
	*view
	held [heldPackets]heldPacket
	data []byte // maxTunnelPacket bytes of each; not resident before its first use
}

func newFragments(v *view) *fragments {
	return &fragments{view: v, data: make([]byte, heldPackets*maxTunnelPacket)}
}

// reassemble takes a fragment. If it completes a packet, the frame in b becomes that packet, with the data at an offset
// and the headers of the fragment. Fragments that arrive before the first one are kept, and another receiver gets them,
// too.
func (f *fragments) reassemble(in *iface, b *frame.Buffer, at int, t tunnelFragment) fate {
	if !f.snapshot.isTunnelPeer(t.ends) {
		return fragmentPasses
	}
	n := f.find(t)
	p := &f.held[n]
	p.identify(f.snapshot, in, t)
	if p.state == heldUnknown && t.wanted && !p.fits(t) {
		p.state = heldForeign // no dataplane sends such a fragment
	}
	switch {
	case p.state == heldForeign:
		return fragmentPasses
	case p.state == heldRefused, !p.fits(t):
		p.state = heldRefused
		return fragmentDropped
	}
	p.take(f.memory(n), t)
	switch {
	case p.total != 0 && p.received == p.total:
		p.deadline = 0
		b.SetLen(at + copy(b.Room()[at:], f.memory(n)[:p.total]))
		b.Virtio = frame.Virtio{}
		return fragmentCompletes
	case p.state == heldUnknown && t.wanted:
		return fragmentPasses
	}
	return fragmentKept
}

func (f *fragments) memory(n int) []byte { return f.data[n*maxTunnelPacket : (n+1)*maxTunnelPacket] }

// find returns the place of a fragment's packet, which may be a new one.
func (f *fragments) find(t tunnelFragment) int {
	now := f.stopwatch()
	free := -1
	oldest := 0
	oldestOfPeer := -1
	ofPeer := 0
	for n := range f.held {
		p := &f.held[n]
		if p.deadline != 0 && p.deadline <= now {
			f.forget(p)
		}
		switch {
		case p.deadline == 0:
			free = n
			continue
		case p.identification == t.identification && p.ends == t.ends:
			return n
		case p.ends.remote == t.ends.remote:
			ofPeer++
			if oldestOfPeer < 0 || p.deadline < f.held[oldestOfPeer].deadline {
				oldestOfPeer = n
			}
		}
		if p.deadline < f.held[oldest].deadline {
			oldest = n
		}
	}
	switch {
	case ofPeer >= heldOfPeer:
		free = oldestOfPeer
	case free < 0:
		free = oldest
	}
	f.forget(&f.held[free])
	f.held[free] = heldPacket{ends: t.ends, identification: t.identification, deadline: now + fragmentsWait}
	return free
}

// forget frees a place, and counts a packet that is lost by that.
func (f *fragments) forget(p *heldPacket) {
	if p.deadline != 0 && p.state == heldTunnelled {
		f.drops[dropTunnelIncomplete].Add(1)
	}
	p.deadline = 0
}

// identify learns from the first fragment whether a packet is one of a tunnel.
func (p *heldPacket) identify(s *snapshot, in *iface, t tunnelFragment) {
	if t.offset != 0 || p.state != heldUnknown {
		return
	}
	p.state = heldForeign
	if s.isTunnelFragment(in, t.data, t.ends) {
		p.state = heldTunnelled
	}
}

// fits reports whether a fragment agrees with the others of its packet. A copy of one does, and other overlaps do not
// (RFC 5722).
func (p *heldPacket) fits(t tunnelFragment) bool {
	end := t.offset + len(t.data)
	switch {
	case len(t.data) == 0, t.more && len(t.data)%8 != 0, end > maxTunnelPacket,
		p.total != 0 && (end > p.total || !t.more && end != p.total):
		return false
	case p.has(t):
		return true
	case p.n == maxTunnelPieces:
		return false
	}
	for _, piece := range p.pieces[:p.n] {
		if t.offset < piece[1] && piece[0] < end || !t.more && piece[1] > end {
			return false
		}
	}
	return true
}

// has reports whether a fragment is a copy of one that was received.
func (p *heldPacket) has(t tunnelFragment) bool {
	for _, piece := range p.pieces[:p.n] {
		if piece == [2]int{t.offset, t.offset + len(t.data)} {
			return true
		}
	}
	return false
}

// take copies the data of a fragment that fits.
func (p *heldPacket) take(memory []byte, t tunnelFragment) {
	if p.has(t) {
		return
	}
	end := t.offset + copy(memory[t.offset:], t.data)
	p.pieces[p.n] = [2]int{t.offset, end}
	p.n++
	p.received += len(t.data)
	if !t.more {
		p.total = end
	}
}

// isTunnelPeer reports whether a tunnel has the addresses and the table.
func (s *snapshot) isTunnelPeer(ends tunnelKey) bool { return s.tunnels.ends[ends] > 0 }

// ends are the addresses and the table of a tunnel.
func (k tunnelKey) ends() tunnelKey {
	return tunnelKey{local: k.local, remote: k.remote, table: k.table}
}

// reassemble4 decides on a fragment of UDP over IPv4. If it returns false, the frame is now the whole packet, or
// another receiver gets the fragment.
func (v *vtep) reassemble4(in *iface, b *frame.Buffer, p frame.IPv4) (verdict, bool) {
	f := v.reassemble(in, b, frame.EthernetLen+p.HeaderLen(), tunnelFragment{
		ends: outerKey(p.Source(), p.Destination(), in.table4), identification: uint32(binary.BigEndian.Uint16(p[4:])),
		offset: int(p.FragmentOffset()) * 8, data: p.Payload(), more: p.MoreFragments(), wanted: in.redirect4 != nil,
	})
	if f == fragmentCompletes {
		frame.IPv4(b.Bytes()[frame.EthernetLen:]).SetWhole()
	}
	return v.verdictOn(f)
}

// reassemble6 is reassemble4 for IPv6. Routers do not fragment its packets, but other dataplanes may.
func (v *vtep) reassemble6(in *iface, b *frame.Buffer, p frame.IPv6) (verdict, bool) {
	h, is := p.Fragment()
	if !is || h.Protocol != frame.ProtocolUDP {
		return verdict{}, false
	}
	f := v.reassemble(in, b, frame.EthernetLen+h.At, tunnelFragment{
		ends: outerKey(p.Source(), p.Destination(), in.table6), identification: h.Identification,
		offset: h.Offset, data: p[h.At+frame.FragmentLen:], more: h.More, wanted: in.redirect6 != nil,
	})
	if f == fragmentCompletes {
		p[h.NextField] = h.Protocol
		frame.IPv6(b.Bytes()[frame.EthernetLen:]).SetWhole()
	}
	return v.verdictOn(f)
}

func (v *vtep) reassemble(in *iface, b *frame.Buffer, at int, t tunnelFragment) fate {
	if v.decapsulating || !frame.Complete(b.Bytes(), &b.Virtio) {
		return fragmentDropped
	}
	return v.fragments.reassemble(in, b, at, t)
}

// verdictOn returns false if the packet is decided on elsewhere.
func (v *vtep) verdictOn(f fate) (verdict, bool) {
	switch f {
	case fragmentKept:
		v.w.detail = detailKept
		if v.w.path != nil {
			v.w.path.add(traceStep{kind: stepKept})
		}
		return verdict{}, true
	case fragmentDropped:
		return verdict{drop: dropTunnelFragment}, true
	}
	return verdict{}, false
}
