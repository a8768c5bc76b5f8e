package forward

import "time"

// Storm control limits the time that a worker spends on flooded frames of one interface. A flooded frame costs its
// sender one transmission, and the worker one copy per member. Each interface has a token bucket of copies on each
// worker, and frames above the limit are dropped and counted. Frames to known MACs and flooded frames with one receiver
// are free. Frames of a BVI come from the dataplane and are not limited.
const (
	// DefaultStormLimit is the default number of copies per second for one interface. On two loaded cores a copy to a
	// tap takes about 3 microseconds, including the receiver's kernel (BenchmarkStorm), so a storm takes about a tenth
	// of a worker.
	DefaultStormLimit = 1 << 15

	// maxFrameCost limits the cost of a frame. At the default limit an interface may flood 512 frames per second in a
	// bridge domain of any size. A host solicits a neighbour once per second (RFC 1122, 2.3.2.1; RFC 4861, 10).
	maxFrameCost = 64

	// burstDivisor divides the rate into the size of a bucket: 256 frames or more by default, as when a pod starts to
	// contact all others.
	burstDivisor = 2
)

// stormLimit converts Config.StormLimit to copies per second; 0: no limit.
func stormLimit(configured int) int {
	if configured == 0 {
		return DefaultStormLimit
	}
	return min(max(configured, 0), int(time.Second)) // the clock's resolution is nanoseconds
}

// stormControl limits the frames that a worker floods.
type stormControl struct {
	*view
	limit int // copies per second; 0: no limit
}

// budget is a worker's token bucket for one interface.
type budget struct {
	tokens   int           // negative after a frame that cost more than the rest
	filledAt time.Duration // when tokens was refilled, by the worker's stopwatch
	_        [48]byte      // keeps the budgets of two workers on separate cache lines
}

func newFloodBudgets(workers []*worker) []*budget {
	return newBudgets(workers, func(w *worker) int { return bucketSize(w.l2.storm.limit) })
}

// newBudgets returns full buckets of a size.
func newBudgets(workers []*worker, size func(*worker) int) []*budget {
	set := make([]*budget, len(workers))
	for i, w := range workers {
		set[i] = &budget{tokens: size(w), filledAt: w.stopwatch()}
	}
	return set
}

// bucketSize is the size of a bucket for a rate in copies per second: at least one frame.
func bucketSize(rate int) int { return max(rate/burstDivisor, maxFrameCost) }

// mayFlood reports whether a frame of an interface may be flooded. It reads the clock only if the bucket is empty.
func (s *stormControl) allows(in *iface) bool {
	if s.limit == 0 || in.l2.bvi {
		return true
	}
	f := in.floods[s.id]
	if f.tokens <= 0 {
		f.refill(s.stopwatch(), s.limit, bucketSize(s.limit))
	}
	return f.tokens > 0
}

// chargeFlood takes the cost of a flooded frame from the bucket of its input interface.
func (s *stormControl) charge(in *iface, receivers int) {
	if s.limit != 0 && !in.l2.bvi && receivers > 1 {
		in.floods[s.id].tokens -= min(receivers-1, maxFrameCost)
	}
}

// refill adds the tokens since the last refill, at a rate per second, up to the size of the bucket.
func (f *budget) refill(now time.Duration, rate, size int) {
	most := size - f.tokens
	pause := time.Second / time.Duration(rate) // per token
	gained := int(min(time.Duration(most), (now-f.filledAt)/pause))
	if f.tokens += gained; gained == most {
		f.filledAt = now
	} else {
		f.filledAt += time.Duration(gained) * pause
	}
}
