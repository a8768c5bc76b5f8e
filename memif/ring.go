package memif

import (
	"sync/atomic"
	"unsafe"
)

// A ring in shared memory, as the protocol lays it out:
//
//	0 cookie u32   4 flags u16   6 head u16   64 tail u16   128 slots, 16 bytes each:
//	                                                            0 flags u16   2 region u16   4 length u32   8 offset u32
//
// Head and tail run freely; a slot is the index modulo the ring's size. The client writes head, the server tail, and
// the receiver of packets flags. Go has no 16-bit atomics: head and flags are changed together by compare and swap,
// tail is stored with the padding behind it.
const (
	ringCookie     = 0x3E31F20
	ringHeaderSize = 128
	slotSize       = 16
	maxRingLog2    = 14
	// ringAlignment keeps each atomically used word and slot within a cache line.
	ringAlignment = 16

	stateOffset = 4
	tailOffset  = 64

	// maskInterrupt is the receiver's flag: do not ring.
	maskInterrupt = 1
	// chained is the flag of a slot with a packet that continues in the next slot.
	chained = 1
)

// ringBytes returns the size of a ring with a number of slots.
func ringBytes(slots uint32) uint64 { return ringHeaderSize + uint64(slots)*slotSize }

// ring is one direction's.
type ring struct {
	header unsafe.Pointer
	slots  unsafe.Pointer
	size   uint16
	mask   uint16
}

func newRingAt(header unsafe.Pointer, log2 uint8) ring {
	size := uint16(1) << log2
	return ring{header: header, slots: unsafe.Add(header, ringHeaderSize), size: size, mask: size - 1}
}

func (r *ring) cookie() *uint32 { return (*uint32)(r.header) }

// state holds flags in its lower half and head in its upper.
func (r *ring) state() *uint32 { return (*uint32)(unsafe.Add(r.header, stateOffset)) }

func (r *ring) tailWord() *uint32 { return (*uint32)(unsafe.Add(r.header, tailOffset)) }

func (r *ring) head() uint16 { return uint16(atomic.LoadUint32(r.state()) >> 16) }

func (r *ring) tail() uint16 { return uint16(atomic.LoadUint32(r.tailWord())) }

func (r *ring) setTail(v uint16) { atomic.StoreUint32(r.tailWord(), uint32(v)) }

func (r *ring) setHead(v uint16) {
	for {
		old := atomic.LoadUint32(r.state())
		if atomic.CompareAndSwapUint32(r.state(), old, old&0xffff|uint32(v)<<16) {
			return
		}
	}
}

// maskInterrupts is followed by a full barrier: the receiver's next reads are not older.
func (r *ring) maskInterrupts(on bool) {
	for {
		old := atomic.LoadUint32(r.state())
		flags := old &^ maskInterrupt
		if on {
			flags |= maskInterrupt
		}
		if atomic.CompareAndSwapUint32(r.state(), old, flags) {
			return
		}
	}
}

func (r *ring) interruptsMasked() bool { return atomic.LoadUint32(r.state())&maskInterrupt != 0 }

// descriptor is a copy of a slot: the checked value is used, even if the peer writes meanwhile.
type descriptor struct {
	flags, region  uint16
	length, offset uint32
}

func (r *ring) slot(i uint16) (first, second *uint64) {
	at := unsafe.Add(r.slots, uintptr(i&r.mask)*slotSize)
	return (*uint64)(at), (*uint64)(unsafe.Add(at, 8))
}

func (r *ring) descriptor(i uint16) descriptor {
	first, second := r.slot(i)
	a := atomic.LoadUint64(first)
	b := atomic.LoadUint64(second)
	return descriptor{flags: uint16(a), region: uint16(a >> 16), length: uint32(a >> 32), offset: uint32(b)}
}

// fill sets the fields of a slot that its sender owns: plain stores, published by the index that follows.
func (r *ring) fill(i uint16, d descriptor) {
	first, _ := r.slot(i)
	*first = uint64(d.flags) | uint64(d.region)<<16 | uint64(d.length)<<32
}

// place sets the whole slot: the client's, before the ring is used.
func (r *ring) place(i uint16, d descriptor) {
	r.fill(i, d)
	_, second := r.slot(i)
	*second = uint64(d.offset)
}

// verdict is the result of checking a packet or slot.
type verdict uint8

const (
	good verdict = iota
	badRegion
	badOffset
	badLength
	tooLong
	unfinished
	full
	verdicts
)

// QueueStats are the counters of a queue.
type QueueStats struct {
	Packets, Bytes uint64
	// BadRegion counts packets dropped because a descriptor named an unknown region.
	BadRegion uint64
	// BadOffset counts packets dropped because a descriptor reached beyond its region.
	BadOffset uint64
	// BadLength counts empty packets.
	BadLength uint64
	// TooLong counts packets dropped because they were longer than the buffer, the limit or the whole ring.
	TooLong uint64
	// Unfinished counts packets dropped because their chain continued beyond the published slots.
	Unfinished uint64
	// Full counts how often a transmit ring had no room for a packet.
	Full uint64
	// Rings counts the interrupts sent to the peer.
	Rings uint64
}

// Dropped returns the number of dropped packets of a receive queue.
func (s QueueStats) Dropped() uint64 {
	return s.BadRegion + s.BadOffset + s.BadLength + s.TooLong + s.Unfinished
}

// queue is what both directions of a connection have.
type queue struct {
	ring   ring
	memory *memory
	conn   *Conn
	server bool

	bufferSize uint32 // the client's slots
	maxPacket  uint32
	eventfd    int
}

// Size returns the ring's size in slots.
func (q *queue) Size() int { return int(q.ring.size) }

// counters has one writer, the queue's owner, and any number of readers.
type counters struct {
	packets, bytes, rings atomic.Uint64
	dropped               [verdicts]atomic.Uint64
}

func (c *counters) drop(v verdict) { c.dropped[v].Add(1) }

func (c *counters) add(packets, bytes uint64) {
	if packets != 0 {
		c.packets.Add(packets)
		c.bytes.Add(bytes)
	}
}

func (c *counters) stats() QueueStats {
	return QueueStats{
		Packets:    c.packets.Load(),
		Bytes:      c.bytes.Load(),
		BadRegion:  c.dropped[badRegion].Load(),
		BadOffset:  c.dropped[badOffset].Load(),
		BadLength:  c.dropped[badLength].Load(),
		TooLong:    c.dropped[tooLong].Load(),
		Unfinished: c.dropped[unfinished].Load(),
		Full:       c.dropped[full].Load(),
		Rings:      c.rings.Load(),
	}
}
