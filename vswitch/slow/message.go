package slow

import (
	"net/netip"

	"github.com/weftnet/weft/vswitch/frame"
)

// Reason says why a worker hands a frame over, or what it shall do with one it is handed.
type Reason uint8

// From a worker to the slow path.
const (
	ARP              Reason = iota + 1 // an ARP packet received on Interface
	Discovery                          // a neighbour solicitation or advertisement received on Interface
	Received                           // a packet to one of the dataplane's own addresses
	Unresolved                         // ready to leave on Out, but for the MAC of Target
	Expired                            // TTL or hop limit ran out
	NoRoute                            // no route to the destination
	HostUnreached                      // the neighbour does not answer
	RouteUnreachable                   // the route's path is ICMP unreachable
	Prohibited                         // a route says prohibited
	TooBig                             // longer than MTU, and not to be fragmented
)

// From the slow path to a worker.
const (
	Output Reason = iota + 32 // send the frame on Out as it is
	Route                     // look up the packet's destination as if it came from Interface; no TTL is taken
)

// MessageSize is the longest frame that a message holds whole: a jumbo frame of 9,216 bytes with its Ethernet header.
const MessageSize = 9232

// Message is a frame between a worker and the slow path. It is copied: no buffer ever changes hands.
type Message struct {
	Reason    Reason
	Interface uint32     // where the frame was received
	Out       uint32     // where it leaves: Unresolved, Output
	Target    netip.Addr // Unresolved: the next hop
	MTU       int        // TooBig: the longest IP packet that would have passed
	Virtio    frame.Virtio
	Whole     bool // false: only the frame's head fitted
	length    int
	data      [MessageSize]byte
}

// Bytes returns the frame, from its Ethernet header on.
func (m *Message) Bytes() []byte { return m.data[:m.length] }

// Fill copies a frame in, as much as fits.
func (m *Message) Fill(b []byte) {
	m.length = copy(m.data[:], b)
	m.Whole = m.length == len(b)
}

// Room returns all of the message's memory, for a writer; SetLen then says how much it used.
func (m *Message) Room() []byte { return m.data[:] }

// SetLen says how long the frame is, at most MessageSize.
func (m *Message) SetLen(n int) { m.length, m.Whole = n, true }
