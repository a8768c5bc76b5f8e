package memif

import (
	"runtime/debug"
	"unsafe"
)

// RxQueue receives a connection's packets. One goroutine at a time may use it, except for Stats. Do not use it after
// Conn.Release.
type RxQueue struct {
	queue
	next uint16 // the first slot that was not read
	held uint16 // the first slot that was not returned

	segments  [][]byte // of chains that Peek found
	arena     []byte   // what Peek shows of guarded memory
	arenaUsed int
	counters  counters
	errors    int // invalid descriptors less valid packets
}

const (
	// slotsEach bounds the slots that a call reads per requested packet, so that a peer that sends only invalid packets
	// takes no more time than others.
	slotsEach = 4

	// maxErrors ends the connection of a peer that keeps sending invalid descriptors.
	maxErrors = 1 << 12
)

// Stats returns the counters. Any goroutine may call it.
func (q *RxQueue) Stats() QueueStats { return q.counters.stats() }

// Receive copies waiting packets into v's slices, at most one into each, as far as their capacity reaches, and sets
// their lengths; it returns how many it filled. It returns the slots to the peer, including those that Peek showed. A
// packet longer than its buffer is dropped. It returns fewer than wait where there are many to drop.
func (q *RxQueue) Receive(v [][]byte) int {
	if q.memory.guarded {
		return q.receiveGuarded(v)
	}
	return q.receive(v)
}

func (q *RxQueue) receiveGuarded(v [][]byte) (n int) {
	defer q.conn.recoverFault(debug.SetPanicOnFault(true))
	return q.receive(v)
}

func (q *RxQueue) receive(v [][]byte) int {
	left, rest := q.waitingFor(len(v))
	n := 0
	bytes := uint64(0)
	for n < len(v) && left > rest {
		d := q.ring.descriptor(q.next)
		slots := uint16(1)
		length := d.length
		var verdict verdict
		if d.flags&chained == 0 {
			verdict = q.copyOne(d, v[n])
		} else {
			slots, length, verdict = q.copyChain(left, v[n])
		}
		q.next += slots
		left -= slots
		if verdict != good {
			q.reject(verdict)
			continue
		}
		v[n] = v[n][:length]
		n++
		bytes += uint64(length)
	}
	q.accept(n, bytes)
	q.giveBack()
	return n
}

// waiting is how many slots the peer has published; an impossible index ends the connection.
func (q *RxQueue) waiting() uint16 {
	if q.conn.broken.Load() {
		return 0
	}
	published := q.ring.tail
	if q.server {
		published = q.ring.head
	}
	n := published() - q.next
	if n > q.held+q.ring.size-q.next {
		q.conn.breakOff(ErrIndex)
		return 0
	}
	return n
}

// waitingFor returns the number of waiting slots, and how many of them are left to later calls.
func (q *RxQueue) waitingFor(packets int) (waiting, rest uint16) {
	waiting = q.waiting()
	if most := slotsEach * packets; int(waiting) > most {
		rest = waiting - uint16(most)
	}
	return waiting, rest
}

// accept counts packets.
func (q *RxQueue) accept(n int, bytes uint64) {
	q.counters.add(uint64(n), bytes)
	if q.errors > 0 {
		q.errors = max(0, q.errors-n)
	}
}

// reject counts a dropped packet. A packet that is too long does not violate the protocol.
func (q *RxQueue) reject(v verdict) {
	q.counters.drop(v)
	if v == tooLong {
		return
	}
	if q.errors++; q.errors > maxErrors {
		q.conn.breakOff(ErrDescriptors)
	}
}

func (q *RxQueue) copyOne(d descriptor, into []byte) verdict {
	p, verdict := q.memory.at(d)
	switch {
	case verdict != good:
		return verdict
	case d.length == 0:
		return badLength
	case uint64(d.length) > uint64(cap(into)) || d.length > q.maxPacket:
		return tooLong
	}
	copy(into[:d.length], unsafe.Slice((*byte)(p), d.length))
	return good
}

// copyChain returns how many slots the packet at next has, dropped or not. A packet with a chain that does not end
// within the published slots takes all of them, but at most as many slots as the longest packet has.
func (q *RxQueue) copyChain(left uint16, into []byte) (slots uint16, length uint32, found verdict) {
	limit := min(uint64(cap(into)), uint64(q.maxPacket))
	into = into[:cap(into)]
	for slots < min(left, q.longestChain()) {
		d := q.ring.descriptor(q.next + slots)
		slots++
		p, verdict := q.memory.at(d)
		if verdict == good && uint64(length)+uint64(d.length) > limit {
			verdict = tooLong
		}
		if found == good {
			found = verdict
		}
		if found == good {
			length += uint32(copy(into[length:], unsafe.Slice((*byte)(p), d.length)))
		}
		if d.flags&chained == 0 {
			return slots, length, q.checkChain(length, found)
		}
	}
	return slots, length, q.endOfChain(slots, left)
}

// longestChain returns the number of slots that a packet may have: the slots of the longest packet in the smallest
// buffers. A chain of buffers with few bytes would take the time of thousands of packets.
func (q *RxQueue) longestChain() uint16 {
	return uint16(max(q.maxPacket, DefaultMaxPacket)/minBuffer) + 1
}

// endOfChain describes the error of a chain that goes on behind the slots that were read.
func (*RxQueue) endOfChain(slots, left uint16) verdict {
	if slots < left {
		return tooLong
	}
	return unfinished
}

func (*RxQueue) checkChain(length uint32, found verdict) verdict {
	if found == good && length == 0 {
		return badLength
	}
	return found
}

// giveBack returns all read slots to the peer.
func (q *RxQueue) giveBack() {
	if q.held == q.next {
		return
	}
	if q.server {
		q.held = q.next
		q.ring.setTail(q.held)
		return
	}
	for ; q.held != q.next; q.held++ {
		q.ring.fill(q.held, descriptor{length: q.bufferSize})
	}
	q.ring.setHead(q.held + q.ring.size)
}

// FD is the ring's eventfd, which the peer writes when it published packets and the queue is armed. The peer holds it
// too: take it out of every epoll before Conn.Release, and do not read it where the peer is not trusted, because it can
// be made to block; a Waiter does both.
func (q *RxQueue) FD() int { return q.eventfd }

// Arm enables the peer's interrupts. It returns true if packets wait already: do not sleep then.
func (q *RxQueue) Arm() (waiting bool) {
	if q.memory.guarded {
		defer q.conn.recoverFault(debug.SetPanicOnFault(true))
	}
	q.ring.maskInterrupts(false)
	return q.waiting() != 0
}

// Disarm disables the peer's interrupts, the initial state. One interrupt may still arrive.
func (q *RxQueue) Disarm() {
	if q.memory.guarded {
		defer q.conn.recoverFault(debug.SetPanicOnFault(true))
	}
	q.ring.maskInterrupts(true)
}

// Waiting returns the number of slots with packets that were not read.
func (q *RxQueue) Waiting() int {
	if q.memory.guarded {
		defer q.conn.recoverFault(debug.SetPanicOnFault(true))
	}
	return int(q.waiting())
}

// arenaSize bounds the bytes of guarded memory that Peek shows at a time.
const arenaSize = 256 << 10

// Packet is a packet in shared memory. Data and More are valid until RxQueue.Release or Receive, and may be changed by
// the peer at any time: copy them before validating.
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
	n := 0
	bytes := uint64(0)
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
	for slots < min(left, q.longestChain()) {
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
	return slots, length, q.endOfChain(slots, left)
}

func (q *RxQueue) keep(p *Packet, slot uint16, segment []byte) {
	if slot == 1 {
		p.Data = segment
		return
	}
	q.segments = append(q.segments, segment) // within its capacity: the ring's size
}

// peekGuarded shows copies: the caller's reads cannot fault.
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
