package slow

import (
	"net/netip"

	"github.com/weftnet/weft/vswitch/frame"
)

// Reason says why a worker sends a frame to the slow path, or how the worker handles a frame from the slow path.
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

// MessageSize is the length of the longest frame that fits into a message.
const MessageSize = frame.JumboSize

// Message is a frame between a worker and the slow path. The frame is copied: buffers stay with their worker.
type Message struct {
	Reason    Reason
	Interface uint32     // the interface that received it
	Sender    uint32     // the interface that is charged for the slow path: of a BVI the member that sent the frame
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
func (m *Message) SetLen(n int) {
	m.length = n
	m.Whole = true
}
