package memif

import (
	"runtime/debug"
	"unsafe"
)

// arenaSize is what Peek can show at a time of memory that must not be used directly.
const arenaSize = 256 << 10

// Packet is a packet in shared memory. Data and More are valid until RxQueue.Release or Receive, and may be changed by the
// peer at any time: copy them before validating.
type Packet struct {
	// Data is the packet, or its beginning.
	Data []byte
	// More is the rest of a packet that came in several buffers.
	More [][]byte
}

// Len is the packet's length.
func (p *Packet) Len() int {
	n := len(p.Data)
	for _, s := range p.More {
		n += len(s)
	}
	return n
}

// CopyTo copies the packet, or as much as there is room for, and returns how much.
func (p *Packet) CopyTo(b []byte) int {
	n := copy(b, p.Data)
	for _, s := range p.More {
		n += copy(b[n:], s)
	}
	return n
}

// Peek shows waiting packets, those that it has not shown before, and returns how many it put into v. Their slots stay
// taken until Release. It shows fewer than wait where there are many to drop.
func (q *RxQueue) Peek(v []Packet) int {
	if q.memory.guarded {
		return q.peekGuarded(v)
	}
	left, rest := q.waitingFor(len(v))
	n, bytes := 0, uint64(0)
	for n < len(v) && left > rest {
		d := q.ring.descriptor(q.next)
		if at, verdict := q.memory.at(d); verdict == good && d.flags&chained == 0 && d.length-1 < q.maxPacket {
			p := &v[n]
			p.Data = unsafe.Slice((*byte)(at), d.length)
			p.More = nil
			n++
			q.next++
			left--
			bytes += uint64(d.length)
			continue
		}
		slots, length, verdict := q.showChain(left, &v[n])
		q.next += slots
		left -= slots
		if verdict != good {
			q.reject(verdict)
			continue
		}
		bytes += uint64(length)
		n++
	}
	q.accept(n, bytes)
	return n
}

// Release gives the slots of all packets that Peek showed back to the peer.
func (q *RxQueue) Release() {
	q.segments = q.segments[:0]
	q.arenaUsed = 0
	if q.memory.guarded {
		defer q.conn.recoverFault(debug.SetPanicOnFault(true))
	}
	q.giveBack()
}

// showChain makes p of the packet at next, which may have several slots, and returns these and its length.
func (q *RxQueue) showChain(left uint16, p *Packet) (slots uint16, length uint32, found verdict) {
	first := len(q.segments)
	for slots < left {
		d := q.ring.descriptor(q.next + slots)
		slots++
		at, verdict := q.memory.at(d)
		if verdict == good && uint64(length)+uint64(d.length) > uint64(q.maxPacket) {
			verdict = tooLong
		}
		if found == good {
			found = verdict
		}
		if found == good {
			length += d.length
			q.keep(p, slots, unsafe.Slice((*byte)(at), d.length))
		}
		if d.flags&chained == 0 {
			p.More = q.segments[first:len(q.segments):len(q.segments)]
			return slots, length, q.checkChain(length, found)
		}
	}
	return slots, length, unfinished
}

func (q *RxQueue) keep(p *Packet, slot uint16, segment []byte) {
	if slot == 1 {
		p.Data = segment
		return
	}
	q.segments = append(q.segments, segment) // within its capacity: the ring's size
}

// peekGuarded shows copies: what the caller reads cannot fault.
func (q *RxQueue) peekGuarded(v []Packet) (n int) {
	defer q.conn.recoverFault(debug.SetPanicOnFault(true))
	if q.arena == nil {
		q.arena = make([]byte, max(arenaSize, int(q.maxPacket)))
	}
	left, rest := q.waitingFor(len(v))
	bytes := uint64(0)
	for n < len(v) && left > rest && len(q.arena)-q.arenaUsed >= int(q.maxPacket) {
		into := q.arena[q.arenaUsed:]
		slots, length, verdict := q.copyChain(left, into)
		q.next += slots
		left -= slots
		if verdict != good {
			q.reject(verdict)
			continue
		}
		v[n] = Packet{Data: into[:length:length]}
		q.arenaUsed += int(length)
		bytes += uint64(length)
		n++
	}
	q.accept(n, bytes)
	return n
}
