package memif

import (
	"runtime/debug"
	"unsafe"
)

// minBuffer is the smallest buffer that a server fills: with smaller ones each packet could cost thousands of slots.
const minBuffer = 64

// TxQueue sends a connection's packets. One goroutine at a time may use it, except for Stats. Do not use it after
// Conn.Release.
type TxQueue struct {
	queue
	next uint16 // the first slot that was not filled
	sent uint16 // the first slot that was not published
	free uint16 // slots from next on, when last looked

	buffers  unsafe.Pointer // where the client's first slot begins
	reserved []byte         // what Reserve lends of guarded memory
	packets  uint64         // since the last Flush
	bytes    uint64
	counters counters
}

// Stats returns the counters. Any goroutine may call it.
func (q *TxQueue) Stats() QueueStats { return q.counters.stats() }

// Refused returns the number of packets that were taken and dropped because the ring could never hold them,
// QueueStats.TooLong.
func (q *TxQueue) Refused() uint64 { return q.counters.dropped[tooLong].Load() }

// Send copies packets into the ring, publishes them and rings the peer if it wants that. It returns how many it took,
// in order; fewer than all: the ring is full. A packet that is empty or that the ring could never hold is taken and
// dropped.
func (q *TxQueue) Send(v [][]byte) int {
	if q.memory.guarded {
		return q.sendGuarded(v)
	}
	return q.send(v)
}

func (q *TxQueue) sendGuarded(v [][]byte) (n int) {
	defer q.conn.recoverFault(debug.SetPanicOnFault(true))
	return q.send(v)
}

func (q *TxQueue) send(v [][]byte) int {
	n := 0
	for n < len(v) && q.append(v[n], nil) {
		n++
	}
	q.flush()
	return n
}

// Append copies one packet into the ring without publishing it; false: there is no room now.
func (q *TxQueue) Append(packet []byte) bool { return q.AppendParts(packet, nil) }

// AppendParts is Append of a packet that lies in two places. Each byte is read once: the body may be what Peek showed
// of another connection's memory, which its peer changes at any time.
func (q *TxQueue) AppendParts(head, body []byte) bool {
	if q.memory.guarded {
		return q.appendGuarded(head, body)
	}
	if q.free == 0 || !q.server {
		return q.append(head, body)
	}
	// What most packets need, in one piece.
	length := uint64(len(head)) + uint64(len(body))
	room := q.ring.descriptor(q.next)
	to, verdict := q.memory.at(room)
	if verdict != good || room.length < minBuffer || length > uint64(room.length) || length-1 >= uint64(q.maxPacket) {
		return q.append(head, body)
	}
	if len(head) == line {
		copyLine((*[line]byte)(to), (*[line]byte)(head))
	} else {
		copyHead(to, head)
	}
	if len(body) > 0 {
		copy(unsafe.Slice((*byte)(unsafe.Add(to, len(head))), len(body)), body)
	}
	room.flags = 0
	room.length = uint32(length)
	q.ring.fill(q.next, room)
	q.took(1, int(length))
	return true
}

// line is the size of a cache line, and of the smallest Ethernet frame.
const line = 64

// copyHead copies to a place with enough room. It spares a call of memmove if the call costs as much as the copying.
func copyHead(to unsafe.Pointer, from []byte) {
	n := len(from)
	if n < line || n > 2*line {
		copy(unsafe.Slice((*byte)(to), n), from)
		return
	}
	copyLine((*[line]byte)(to), (*[line]byte)(from))
	if n > line {
		copyLine((*[line]byte)(unsafe.Add(to, n-line)), (*[line]byte)(from[n-line:]))
	}
}

// copyLine copies in four moves; of larger ones the compiler makes a call.
func copyLine(to, from *[line]byte) {
	*(*[16]byte)(to[0:16]) = *(*[16]byte)(from[0:16])
	*(*[16]byte)(to[16:32]) = *(*[16]byte)(from[16:32])
	*(*[16]byte)(to[32:48]) = *(*[16]byte)(from[32:48])
	*(*[16]byte)(to[48:64]) = *(*[16]byte)(from[48:64])
}

func (q *TxQueue) appendGuarded(head, body []byte) (ok bool) {
	defer q.conn.recoverFault(debug.SetPanicOnFault(true))
	return q.append(head, body)
}

// Flush publishes the appended and committed packets, and rings the peer if the peer wants that.
func (q *TxQueue) Flush() {
	if q.memory.guarded {
		defer q.conn.recoverFault(debug.SetPanicOnFault(true))
	}
	q.flush()
}

// Free is how many slots can be filled now. A packet takes one, or several if it is longer than the peer's buffers.
func (q *TxQueue) Free() int {
	if q.memory.guarded {
		defer q.conn.recoverFault(debug.SetPanicOnFault(true))
	}
	q.look()
	return int(q.free)
}

func (q *TxQueue) append(head, body []byte) bool {
	length := len(head) + len(body)
	if length == 0 || uint64(length) > uint64(q.maxPacket) {
		q.refuse(length)
		return true
	}
	if q.free == 0 && !q.look() {
		q.counters.drop(full)
		return false
	}
	to, room := q.buffer(q.next)
	if uint64(length) > uint64(room.length) {
		return q.appendChain(head, body)
	}
	copy(unsafe.Slice((*byte)(to), len(head)), head)
	if len(body) > 0 {
		copy(unsafe.Slice((*byte)(unsafe.Add(to, len(head))), len(body)), body)
	}
	room.flags = 0
	room.length = uint32(length)
	q.ring.fill(q.next, room)
	q.took(1, length)
	return true
}

func (q *TxQueue) refuse(length int) {
	if length == 0 {
		q.counters.drop(badLength)
		return
	}
	q.counters.drop(tooLong)
}

func (q *TxQueue) took(slots uint16, length int) {
	q.next += slots
	q.free -= slots
	q.packets++
	q.bytes += uint64(length)
}

// look reads the free slots of the ring and reports whether there are any. An impossible index ends the connection.
func (q *TxQueue) look() bool {
	q.free = 0
	if q.conn.broken.Load() {
		return false
	}
	filled := q.next - q.sent
	var offered uint16 // slots from sent on
	if q.server {
		offered = q.ring.head() - q.sent
	} else {
		offered = q.ring.tail() + q.ring.size - q.sent
	}
	if offered > q.ring.size || offered < filled {
		q.conn.breakOff(ErrIndex)
		return false
	}
	q.free = offered - filled
	return q.free != 0
}

// buffer returns a slot's memory and its descriptor, with the room as its length. An unusable slot has no length,
// and ends the connection.
func (q *TxQueue) buffer(i uint16) (unsafe.Pointer, descriptor) {
	if !q.server {
		at := uintptr(i&q.ring.mask) * uintptr(q.bufferSize)
		return unsafe.Add(q.buffers, at), descriptor{length: q.bufferSize}
	}
	d := q.ring.descriptor(i)
	at, verdict := q.memory.at(d)
	if verdict != good || d.length < minBuffer {
		q.conn.breakOff(ErrBuffer)
		q.free = 0
		return nil, descriptor{}
	}
	return at, d
}

// appendChain spreads a packet over several slots. All but the last are filled, so that a chain which does not fit
// leaves only flags behind, which the next packet overwrites.
func (q *TxQueue) appendChain(head, body []byte) bool {
	length := len(head) + len(body)
	i := uint16(0)
	for {
		if i == q.free && (!q.look() || i >= q.free) {
			return q.noRoom(i)
		}
		to, room := q.buffer(q.next + i)
		if room.length == 0 {
			return false
		}
		i++
		if uint64(len(head))+uint64(len(body)) <= uint64(room.length) {
			room.flags = 0
			room.length = uint32(len(head) + len(body))
			copyParts(unsafe.Slice((*byte)(to), room.length), head, body)
			q.ring.fill(q.next+i-1, room)
			q.took(i, length)
			return true
		}
		head, body = copyParts(unsafe.Slice((*byte)(to), room.length), head, body)
		room.flags = chained
		q.ring.fill(q.next+i-1, room)
	}
}

// copyParts fills to with what there is, and returns what did not fit.
func copyParts(to, head, body []byte) (moreHead, moreBody []byte) {
	n := copy(to, head)
	m := copy(to[n:], body)
	return head[n:], body[m:]
}

// noRoom distinguishes a packet that must wait from one that never fits.
func (q *TxQueue) noRoom(slots uint16) bool {
	if slots == q.ring.size {
		q.counters.drop(tooLong)
		return true
	}
	q.counters.drop(full)
	return false
}

func (q *TxQueue) flush() {
	if q.next == q.sent {
		return
	}
	q.sent = q.next
	if q.server {
		q.ring.setTail(q.sent)
	} else {
		q.ring.setHead(q.sent)
	}
	q.counters.add(q.packets, q.bytes)
	q.packets = 0
	q.bytes = 0
	if !q.ring.interruptsMasked() {
		q.counters.rings.Add(1)
		q.notify()
	}
}

// notify wakes the peer. A server never blocks on the client's eventfd.
func (q *TxQueue) notify() {
	if b := q.conn.notified; b != nil {
		if b.run(q.notifyNow) {
			q.conn.breakOff(ErrNotifications)
		}
		return
	}
	q.notifyNow()
}

func (q *TxQueue) notifyNow() {
	if q.server || theCompleter.Load() != nil {
		notify(q.eventfd)
		return
	}
	notifyByWrite(q.eventfd)
}

// Reserve lends the next slot's buffer to write a packet of up to n bytes into; nil: there is no room now, or not in
// one buffer. It is valid until Commit, Append, Send or Flush, and lent again if it was not committed.
func (q *TxQueue) Reserve(n int) []byte {
	if n <= 0 || uint64(n) > uint64(q.maxPacket) {
		return nil
	}
	if q.memory.guarded {
		return q.reserveGuarded(n)
	}
	return q.reserve(n)
}

func (q *TxQueue) reserve(n int) []byte {
	if q.free == 0 && !q.look() {
		q.counters.drop(full)
		return nil
	}
	to, room := q.buffer(q.next)
	if uint64(n) > uint64(room.length) {
		return nil
	}
	return unsafe.Slice((*byte)(to), n)
}

// reserveGuarded lends memory of this side: the caller's writes cannot fault.
func (q *TxQueue) reserveGuarded(n int) (lent []byte) {
	defer q.conn.recoverFault(debug.SetPanicOnFault(true))
	if q.reserve(n) == nil {
		return nil
	}
	if q.reserved == nil {
		q.reserved = make([]byte, q.maxPacket)
	}
	return q.reserved[:n]
}

// Commit appends the first n bytes of the buffer that Reserve returned last, without publishing them. It has no effect
// if n is not positive, or larger than the buffer.
func (q *TxQueue) Commit(n int) {
	if n <= 0 || q.free == 0 {
		return
	}
	if q.memory.guarded {
		q.appendGuarded(q.reserved[:min(n, len(q.reserved))], nil)
		return
	}
	_, room := q.buffer(q.next)
	if uint64(n) > uint64(room.length) {
		return
	}
	room.flags = 0
	room.length = uint32(n)
	q.ring.fill(q.next, room)
	q.took(1, n)
}
