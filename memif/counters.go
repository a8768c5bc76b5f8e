package memif

import "sync/atomic"

// verdict is what was found of a packet or slot.
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

// QueueStats is what went through a queue and what did not.
type QueueStats struct {
	Packets, Bytes uint64
	// BadRegion counts packets dropped because a descriptor named a region that is not there.
	BadRegion uint64
	// BadOffset counts packets dropped because a descriptor reached beyond its region.
	BadOffset uint64
	// BadLength counts empty packets.
	BadLength uint64
	// TooLong counts packets dropped because they were longer than the buffer, the limit or the whole ring.
	TooLong uint64
	// Unfinished counts packets dropped because their chain went on beyond what was published.
	Unfinished uint64
	// Full counts how often a transmit ring had no room for a packet.
	Full uint64
	// Rings counts the interrupts sent to the peer.
	Rings uint64
}

// Dropped sums up what a receiver lost.
func (s QueueStats) Dropped() uint64 {
	return s.BadRegion + s.BadOffset + s.BadLength + s.TooLong + s.Unfinished
}

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
