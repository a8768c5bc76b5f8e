package forward

import (
	"net/netip"

	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/port"
)

// EventKind says what happened.
type EventKind uint8

// What control hears of.
const (
	PortDown         EventKind = iota + 1 // the port erred and is closed; it is being opened again
	PortUp                                // the port works again; OpenTap's own success is no event
	PeerConnected                         // a memif's client is there
	PeerGone                              // a memif has lost its client
	NeighbourLearned                      // the slow path resolved Addr; control answers with SetNeighbour and Publish
)

// Event is something that happened in the dataplane by itself.
type Event struct {
	Kind      EventKind
	Interface uint32
	Addr      netip.Addr      // NeighbourLearned
	MAC       frame.MAC       // NeighbourLearned
	Err       error           // PortDown, PeerGone: why
	Peer      *port.MemifPeer // PeerConnected
}

// eventBacklog bounds the events that control has not read; a neighbour report that is lost is made again when it is needed.
const eventBacklog = 1024

// Events is where control hears. It is never closed: the reader stops with its context.
func (e *Engine) Events() <-chan Event { return e.events }

// report never blocks: an event that does not fit is lost and counted.
func (e *Engine) report(ev Event) bool {
	select {
	case e.events <- ev:
		return true
	default:
		e.lostEvents.Add(1)
		return false
	}
}
