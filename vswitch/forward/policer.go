package forward

import (
	"sync/atomic"
	"time"

	"github.com/weftnet/weft/vswitch/frame"
)

// PolicerConfig is the configuration of a policer: a token bucket with one rate and two colours (VPP: 1R2C). It drops
// the packets that exceed it.
type PolicerConfig struct {
	Rate  uint32 // kilobits per second, not zero
	Burst uint32 // bytes, not zero
	Marks bool   // packets that conform get the DSCP
	DSCP  uint8
}

// Policer is a token bucket. Interfaces and workers may share it: its state is one word, which each packet changes by
// one compare-and-swap. So workers need no lock, and share the rate exactly.
//
// The word is the time at which the bucket is full, in units of which a nanosecond and a byte are whole numbers at this
// rate. Therefore no fraction of a byte is lost. The units wrap around, after 18 minutes or more; only differences are
// used.
type Policer struct {
	config  PolicerConfig
	perNano uint64 // units of a nanosecond
	perByte uint64 // units in which the rate carries one byte
	depth   uint64 // units in which an empty bucket is full
	skew    uint64 // units by which the clock of one worker may be behind that of another
	full    atomic.Uint64

	droppedPackets, droppedBytes atomic.Uint64
}

// nanosPerByte is the number of nanoseconds that a byte takes at one kilobit per second.
const nanosPerByte = 8 * uint64(time.Second) / 1000

const (
	// wholeMegabits is the rate above which a policer has whole megabits per second: with more units a nanosecond they
	// would wrap around too soon.
	wholeMegabits = 1 << 24
	// maxSkew is longer than a worker works on a vector, for which it reads the clock once.
	maxSkew = time.Second
)

// NewPolicer returns a policer with a full bucket.
func NewPolicer(c PolicerConfig) *Policer {
	rate := uint64(c.Rate)
	if rate > wholeMegabits {
		rate -= rate % 1000
	}
	shared := greatestDivisor(rate, nanosPerByte)
	p := &Policer{config: c, perNano: rate / shared, perByte: nanosPerByte / shared}
	p.depth = uint64(c.Burst) * p.perByte
	p.skew = uint64(maxSkew) * p.perNano
	return p
}

func greatestDivisor(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// Dropped returns the number of packets that exceeded the rate, and their bytes.
func (p *Policer) Dropped() (packets, bytes uint64) {
	return p.droppedPackets.Load(), p.droppedBytes.Load()
}

// train is a number of packets that arrive at once, of one size except the last one.
type train struct{ packets, size, last int }

// bytes returns the length of the first n packets.
func (t train) bytes(n int) uint64 {
	if n == t.packets {
		return uint64((n-1)*t.size + t.last)
	}
	return uint64(n * t.size)
}

// take takes the tokens of the first packets of a train that conform, and returns their number.
func (p *Policer) take(now time.Duration, t train) int {
	at := uint64(now) * p.perNano
	for {
		before := p.full.Load()
		full := before
		missing := full - at // units until the bucket is full
		if missing > p.depth+p.skew {
			full = at // it has been full since then, perhaps for longer than the units take to wrap around
			missing = 0
		}
		n := t.packets
		tokens := p.depth - min(missing, p.depth)
		if t.bytes(n)*p.perByte > tokens {
			n = min(n-1, int(tokens/(uint64(t.size)*p.perByte)))
		}
		if n == 0 || p.full.CompareAndSwap(before, full+t.bytes(n)*p.perByte) {
			return n
		}
	}
}

// police takes the tokens of a frame, and marks it. It returns false if the frame is to be dropped. Each segment of a
// GSO frame counts as a packet of its own: segments that exceed the rate are cut off the end of the frame, and counted
// as drops.
func (w *worker) police(p *Policer, i *iface, b *frame.Buffer, drop reason) bool {
	header := 0
	if i.bare {
		header = frame.EthernetLen // which is not on the wire
	}
	n := b.Len() - header
	t := train{packets: 1, size: n, last: n}
	var s frame.Segmenter
	if b.Virtio.IsGSO() {
		var ok bool
		if s, ok = frame.NewSegmenter(b.Bytes(), b.Virtio); ok {
			packets, longest, last := s.Sizes()
			t = train{packets: packets, size: longest - header, last: last - header}
		}
	}
	conform := p.take(w.instant(), t)
	if w.path != nil {
		w.path.add(traceStep{
			kind: stepPolicer, iface: i.index, output: drop == dropPolicerOutput, number: uint32(conform),
		})
	}
	if conform < t.packets {
		counted := max(conform, 1) // the caller counts the drop of a whole frame as one
		w.drops[drop].Add(uint64(t.packets - counted))
		p.droppedPackets.Add(uint64(t.packets - conform))
		p.droppedBytes.Add(t.bytes(t.packets) - t.bytes(conform))
		if conform == 0 {
			return false
		}
		s.Cut(b, conform)
	}
	if p.config.Marks {
		mark(b, p.config.DSCP)
	}
	return true
}

// mark sets the DSCP of an IP packet.
func mark(b *frame.Buffer, dscp uint8) {
	h := b.Head()
	if len(h) < frame.EthernetLen {
		return
	}
	kind, at := frame.Ethernet(h).Network()
	switch {
	case kind == frame.TypeIPv4 && len(h) >= at+frame.IPv4Len:
		frame.IPv4(h[at:]).SetDSCP(dscp)
	case kind == frame.TypeIPv6 && len(h) >= at+frame.IPv6Len:
		frame.IPv6(h[at:]).SetDSCP(dscp)
	}
}

// instant returns the time of the vector, for which the clock is read once.
func (v *view) instant() time.Duration {
	if !v.timed {
		v.now = v.stopwatch()
		v.timed = true
	}
	return v.now
}
