package forward

import (
	"sync/atomic"
	"time"
)

// Load is the load of a worker since its start.
type Load struct {
	Worker  int
	Elapsed time.Duration
	Asleep  time.Duration // without frames, so not on a processor
	Sleeps  uint64
	Vectors uint64 // receptions of at least one frame
	Frames  uint64 // received ones
}

// publishPeriod is the number of vectors after which a busy worker publishes its numbers: an atomic store for each
// vector would cost as much as a tenth of a short vector.
const publishPeriod = 64

// loadMeter measures the load of a worker. Only the worker writes it.
type loadMeter struct {
	start           time.Time
	vectors, frames uint64

	publishedVectors, publishedFrames, sleeps atomic.Uint64
	asleep                                    atomic.Int64
}

func newLoadMeter() loadMeter { return loadMeter{start: time.Now()} }

func (m *loadMeter) received(frames int) {
	m.vectors++
	m.frames += uint64(frames)
	if m.vectors%publishPeriod == 0 {
		m.publish()
	}
}

func (m *loadMeter) publish() {
	m.publishedVectors.Store(m.vectors)
	m.publishedFrames.Store(m.frames)
}

func (m *loadMeter) slept(d time.Duration) {
	m.sleeps.Add(1)
	m.asleep.Add(int64(d))
}

func (m *loadMeter) load(worker int) Load {
	return Load{
		Worker: worker, Elapsed: time.Since(m.start), Asleep: time.Duration(m.asleep.Load()), Sleeps: m.sleeps.Load(),
		Vectors: m.publishedVectors.Load(), Frames: m.publishedFrames.Load(),
	}
}

// Loads returns the load of each worker. It may lack the last 63 vectors of a busy one, and the sleep that has not
// ended.
func (p *published) Loads() []Load {
	loads := make([]Load, len(p.workers))
	for n, w := range p.workers {
		loads[n] = w.load.load(n)
	}
	return loads
}
