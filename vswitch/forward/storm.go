package forward

import "time"

// The storm limit bounds how much of a worker's time the frames of one interface take that a bridge domain floods: their sender has
// the work of one frame, and the worker that of a copy for each member. Each interface has a budget of copies on each worker, a
// token bucket. A frame that comes when the budget is used up is dropped and counted, whomever it would have reached. Frames to
// known MACs cost nothing, nor do flooded ones with one receiver. The frames of a BVI are the dataplane's own and not limited.
const (
	// DefaultStormLimit is how many copies a second are made of the frames of one interface. On two loaded cores a copy to a tap was
	// measured at about 3 microseconds (BenchmarkStorm), with what the receiver's kernel does: so a storm takes about a tenth of a worker.
	DefaultStormLimit = 1 << 15

	// frameCost is the highest price of a frame. So an interface may have 512 frames a second flooded at the default limit in a
	// bridge domain of any size. A host asks for a neighbour once a second (RFC 1122, 2.3.2.1; RFC 4861, 10).
	frameCost = 64

	// stormBurst is the part of a second whose budget can be saved up: for 256 frames at least, as when a pod begins to talk to all
	// others at once.
	stormBurst = 2
)

// stormLimit is the limit of Config.StormLimit in copies a second; 0: none.
func stormLimit(configured int) int {
	if configured == 0 {
		return DefaultStormLimit
	}
	return min(max(configured, 0), int(time.Second)) // a clock of nanoseconds counts no faster
}

// floodBudget is one worker's account of one interface. The worker alone uses it.
type floodBudget struct {
	left int           // copies; below 0 after a frame that cost more than there was
	at   time.Duration // of the worker's stopwatch: until when left was filled up
	_    [48]byte      // keeps two workers' budgets off one cache line
}

func newFloodBudgets(workers []*worker) []*floodBudget {
	set := make([]*floodBudget, len(workers))
	for i, w := range workers {
		set[i] = &floodBudget{left: savedUp(w.stormLimit), at: w.stopwatch()}
	}
	return set
}

// savedUp is the highest budget at a rate of copies a second: enough for one frame, however low the rate.
func savedUp(rate int) int { return max(rate/stormBurst, frameCost) }

// mayFlood reports whether a frame of an interface may be flooded. The clock is not read before the budget is used up.
func (w *worker) mayFlood(in *iface) bool {
	if w.stormLimit == 0 || in.l2.bvi {
		return true
	}
	f := in.floods[w.id]
	if f.left <= 0 {
		f.refill(w.stopwatch(), w.stormLimit)
	}
	return f.left > 0
}

// refill adds what has come together since the last time, at a rate of copies a second.
func (f *floodBudget) refill(now time.Duration, rate int) {
	most, pause := savedUp(rate)-f.left, time.Second/time.Duration(rate) // between two copies
	gained := int(min(time.Duration(most), (now-f.at)/pause))
	if f.left += gained; gained == most {
		f.at = now
	} else {
		f.at += time.Duration(gained) * pause
	}
}

// payFlood takes the price of a frame that reached so many receivers from the budget of the interface it came from.
func (w *worker) payFlood(in *iface, receivers int) {
	if w.stormLimit != 0 && !in.l2.bvi && receivers > 1 {
		in.floods[w.id].left -= min(receivers-1, frameCost)
	}
}
