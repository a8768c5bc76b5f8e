package slow

import (
	"net/netip"
	"sync/atomic"

	"github.com/weftnet/weft/vswitch/frame"
)

// Reason says why a worker sends a frame to the slow path, or what the worker does with a frame from the slow path.
type Reason uint8

// From a worker to the slow path.
const (
	ARP              Reason = iota + 1 // an ARP packet received on Interface
	Discovery                          // a neighbour solicitation or advertisement received on Interface
	Received                           // a packet to one of the dataplane's own addresses
	Unresolved                         // ready for Out except for the MAC of Target
	Expired                            // TTL or hop limit ran out
	NoRoute                            // no route to the destination
	HostUnreached                      // the neighbour does not answer
	RouteUnreachable                   // the route's path is ICMP unreachable
	Prohibited                         // a route says prohibited
	TooBig                             // longer than MTU and must not be fragmented
)

// From the slow path to a worker.
const (
	Output Reason = iota + 32 // send the frame on Out as it is
	Route                     // look up the packet's destination as if it came from Interface; no TTL is taken
)

// MessageSize is the length of the longest frame that fits into a message: a jumbo frame of 9,216 bytes with its Ethernet header.
const MessageSize = 9232

// Message is a frame between a worker and the slow path. The frame is copied: buffers stay with their worker.
type Message struct {
	Reason    Reason
	Interface uint32     // the interface that received it
	Out       uint32     // Unresolved, Output: the interface that sends it
	Target    netip.Addr // Unresolved: the next hop
	MTU       int        // TooBig: the longest IP packet that would have passed
	Virtio    frame.Virtio
	Whole     bool // false: only the frame's head fitted
	length    int
	data      [MessageSize]byte
}

// Bytes returns the frame, from its Ethernet header on.
func (m *Message) Bytes() []byte { return m.data[:m.length] }

// Fill copies a frame into the message and truncates it to MessageSize.
func (m *Message) Fill(b []byte) {
	m.length = copy(m.data[:], b)
	m.Whole = m.length == len(b)
}

// Room returns the whole buffer of the message. The writer then calls SetLen.
func (m *Message) Room() []byte { return m.data[:] }

// SetLen sets the length of the frame, at most MessageSize.
func (m *Message) SetLen(n int) { m.length, m.Whole = n, true }

// Ring is a lock-free queue with one writer, which owns head, and one reader, which owns tail. The writer owns a message
// from Reserve to Commit, the reader from Peek to Advance.
type Ring struct {
	messages []Message
	mask     uint64
	_        [40]byte // head and tail each get a cache line of their own
	head     atomic.Uint64
	_        [56]byte
	tail     atomic.Uint64
	_        [56]byte
}

// NewRing makes a ring of 1<<order messages. Unused memory is never resident.
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

// Advance returns the message of Peek to the writer.
func (r *Ring) Advance() { r.tail.Store(r.tail.Load() + 1) }

// Empty reports whether Peek would return nil.
func (r *Ring) Empty() bool { return r.tail.Load() == r.head.Load() }
