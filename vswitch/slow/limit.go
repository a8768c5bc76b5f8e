package slow

import "time"

// ICMP errors are cheap to provoke: at most this many a second, with this many at once (RFC 4443 2.4 f asks for a token
// bucket; the number is Linux's icmp_msgs_per_sec).
const (
	errorRate  = 1000
	errorBurst = 50
)

// bucket is a token bucket.
type bucket struct {
	rate   float64 // tokens a second
	depth  float64
	tokens float64
	last   time.Time
}

func (b *bucket) take(now time.Time) bool {
	if !b.last.IsZero() {
		b.tokens = min(b.depth, b.tokens+b.rate*max(0, now.Sub(b.last).Seconds()))
	}
	b.last = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}
