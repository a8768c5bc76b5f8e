package memif

import (
	"runtime/debug"
	"unsafe"
)

// Reserve lends the next slot's buffer to write a packet of up to n bytes into; nil: there is no room now, or not in one
// buffer. It is valid until Commit, Append, Send or Flush, and lent again if it was not committed.
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

// reserveGuarded lends memory of this side: what the caller writes cannot fault.
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

// Commit appends the first n bytes of what Reserve lent last, without publishing them. It does nothing if n is not
// positive, or larger than the buffer.
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
	room.flags, room.length = 0, uint32(n)
	q.ring.fill(q.next, room)
	q.took(1, n)
}
