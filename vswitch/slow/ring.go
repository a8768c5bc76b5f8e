package slow

import "sync/atomic"

// Ring is a lock-free queue with one writer, which owns head, and one reader, which owns tail. The writer owns an
// element from Reserve to Commit, the reader from Peek to Advance.
type Ring[T any] struct {
	elements []T
	mask     uint64
	_        [40]byte // head and tail each get a cache line of their own
	head     atomic.Uint64
	_        [56]byte
	tail     atomic.Uint64
	_        [56]byte
}

// NewRing makes a ring of 1<<order elements. Unused memory is never resident.
func NewRing[T any](order uint) *Ring[T] {
	return &Ring[T]{elements: make([]T, 1<<order), mask: 1<<order - 1}
}

// Reserve returns the next free element, or nil when the ring is full.
func (r *Ring[T]) Reserve() *T {
	head := r.head.Load()
	if head-r.tail.Load() == uint64(len(r.elements)) {
		return nil
	}
	return &r.elements[head&r.mask]
}

// Commit shows the reserved element to the reader.
func (r *Ring[T]) Commit() { r.head.Store(r.head.Load() + 1) }

// Peek returns the oldest element, or nil.
func (r *Ring[T]) Peek() *T {
	tail := r.tail.Load()
	if tail == r.head.Load() {
		return nil
	}
	return &r.elements[tail&r.mask]
}

// Advance returns the element of Peek to the writer.
func (r *Ring[T]) Advance() { r.tail.Store(r.tail.Load() + 1) }

// Empty reports whether Peek would return nil.
func (r *Ring[T]) Empty() bool { return r.tail.Load() == r.head.Load() }
