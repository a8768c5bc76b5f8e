package forward

import "sync/atomic"

const (
	// newsDepth bounds what one worker can tell another between two of that one's rounds. What does not fit is lost: the
	// other floods until the MAC is told again.
	newsDepth = 512
	// tellEvery is how often, in seconds, a MAC that is still there is told again; the shortest age is a minute.
	tellEvery = 16
)

// sighting is where another worker has seen a MAC.
type sighting struct {
	key macKey
	out uint32
}

// newsRing passes sightings from one worker to one other.
type newsRing struct {
	sightings [newsDepth]sighting
	head      atomic.Uint64 // the writer's
	_         [56]byte
	tail      atomic.Uint64 // the reader's
}

// put adds a sighting if there is room.
func (r *newsRing) put(s sighting) {
	head := r.head.Load()
	if head-r.tail.Load() == newsDepth {
		return
	}
	r.sightings[head%newsDepth] = s
	r.head.Store(head + 1)
}

// take removes the oldest sighting.
func (r *newsRing) take() (s sighting, ok bool) {
	tail := r.tail.Load()
	if tail == r.head.Load() {
		return s, false
	}
	s = r.sightings[tail%newsDepth]
	r.tail.Store(tail + 1)
	return s, true
}

// connect gives each worker a ring from each other one.
func connect(workers []*worker) {
	if len(workers) < 2 {
		return
	}
	for _, w := range workers {
		w.news = make([]*newsRing, len(workers))
		for from := range workers {
			if from != w.id {
				w.news[from] = new(newsRing)
			}
		}
	}
}

// tell tells the other workers where a MAC is: each has a table of its own, and ports of its own.
func (w *worker) tell(k macKey, out uint32) {
	for _, other := range w.engine.workers {
		if other != w {
			other.news[w.id].put(sighting{k, out})
		}
	}
}

// hearNews takes in what the other workers have seen.
func (w *worker) hearNews() {
	for _, r := range w.news {
		if r == nil {
			continue
		}
		for range newsDepth {
			s, ok := r.take()
			if !ok {
				break
			}
			w.hear(s)
		}
	}
}

func (w *worker) hear(s sighting) {
	if e := w.macs.find(s.key); e != nil {
		e.out, e.seen = s.out, w.now
	} else if w.snapshot.bridge(s.key.slot()) != nil {
		w.note(macEntry{s.key, s.out, w.now})
	}
}
