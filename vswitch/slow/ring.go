package slow

import "sync/atomic"

// Ring passes messages from one goroutine to one other without locks: the writer owns head, the reader tail. A message is
// the writer's from Reserve to Commit, the reader's from Peek to Advance.
type Ring struct {
	messages []Message
	mask     uint64
	_        [40]byte // head and tail each get a cache line of their own
	head     atomic.Uint64
	_        [56]byte
	tail     atomic.Uint64
	_        [56]byte
}

// NewRing makes a ring of 1<<order messages. Memory that is never used is never resident.
func NewRing(order uint) *Ring {
	return &Ring{messages: make([]Message, 1<<order), mask: 1<<order - 1}
}

// Reserve returns the next free message, or nil when the ring is full.
func (r *Ring) Reserve() *Message {
	head := r.head.Load()
	if head-r.tail.Load() == uint64(len(r.messages)) {
		return nil
	}
	return &r.messages[head&r.mask]
}

// Commit shows the reserved message to the reader.
func (r *Ring) Commit() { r.head.Store(r.head.Load() + 1) }

// Peek returns the oldest message, or nil.
func (r *Ring) Peek() *Message {
	tail := r.tail.Load()
	if tail == r.head.Load() {
		return nil
	}
	return &r.messages[tail&r.mask]
}

// Advance gives the message that Peek returned back to the writer.
func (r *Ring) Advance() { r.tail.Store(r.tail.Load() + 1) }

// Empty says that there is nothing to Peek.
func (r *Ring) Empty() bool { return r.tail.Load() == r.head.Load() }
