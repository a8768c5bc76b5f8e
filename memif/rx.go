package memif

import (
	"runtime/debug"
	"unsafe"
)

// RxQueue is where a connection's packets come from. It belongs to one goroutine at a time, but for Stats; after
// Conn.Release nobody may use it.
type RxQueue struct {
	ring   ring
	memory *memory
	conn   *Conn
	server bool

	next uint16 // the first slot that was not looked at
	held uint16 // the first slot that was not given back

	bufferSize uint32 // the client's slots
	maxPacket  uint32
	eventfd    int
	segments   [][]byte // of chains that Peek found
	arena      []byte   // what Peek shows of guarded memory
	arenaUsed  int
	counters   counters
	errors     int // descriptors that no peer writes by mistake, less the packets that were right
}

const (
	// slotsEach bounds the slots that a call looks at for each packet that was asked for. What is dropped is work too: a peer that
	// sends nothing else takes no more time than one that sends packets.
	slotsEach = 4

	// mostErrors ends the connection of a peer whose descriptors go on being wrong.
	mostErrors = 1 << 12
)

// Size is the ring's, in slots.
func (q *RxQueue) Size() int { return int(q.ring.size) }

// Stats may be asked by any goroutine.
func (q *RxQueue) Stats() QueueStats { return q.counters.stats() }

// Receive copies waiting packets into v's slices, at most one into each, as far as their capacity reaches, and sets their
// lengths; it returns how many it filled. The slots go back to the peer, with those of what Peek showed. A packet longer
// than its buffer is dropped. It returns fewer than wait where there are many to drop.
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
	n, bytes := 0, uint64(0)
	for n < len(v) && left > rest {
		d := q.ring.descriptor(q.next)
		slots, length := uint16(1), d.length
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

// waiting is how many slots the peer has published; an index that cannot be right ends the connection.
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

// waitingFor is how many slots wait, and how many of them are left to later calls.
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

// reject counts a packet that is dropped. One that is only too long is no error of the protocol.
func (q *RxQueue) reject(v verdict) {
	q.counters.drop(v)
	if v == tooLong {
		return
	}
	if q.errors++; q.errors > mostErrors {
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

// copyChain returns how many slots the packet at next has, dropped or not. A packet whose chain does not end within what
// is published takes all that is.
func (q *RxQueue) copyChain(left uint16, into []byte) (slots uint16, length uint32, found verdict) {
	limit := min(uint64(cap(into)), uint64(q.maxPacket))
	into = into[:cap(into)]
	for slots < left {
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
	return slots, length, unfinished
}

func (*RxQueue) checkChain(length uint32, found verdict) verdict {
	if found == good && length == 0 {
		return badLength
	}
	return found
}

// giveBack lets the peer have all slots that were looked at.
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
