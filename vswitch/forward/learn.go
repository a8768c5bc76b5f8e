package forward

import "time"

// clockEvery is how many rounds the clock of the MAC table may be behind: to read it costs as much as to forward half a frame,
// and rounds of a busy worker take microseconds.
const clockEvery = 16

// secondClock counts seconds, for MAC tables.
type secondClock struct {
	start   time.Time
	seconds uint32
	fresh   int // reads until the next look at the clock
}

// read returns the seconds since start.
func (c *secondClock) read() uint32 {
	if c.fresh == 0 {
		c.seconds, c.fresh = uint32(time.Since(c.start)/time.Second), clockEvery
	}
	c.fresh--
	return c.seconds
}

// slept says that time has passed unseen.
func (c *secondClock) slept() { c.fresh = 0 }

// tick moves the MAC table's clock, and ages.
func (w *worker) tick() {
	if len(w.snapshot.bridges) == 0 {
		return
	}
	now := w.clock()
	passed := now - w.now
	w.now = now
	w.hearNews()
	if passed > 0 {
		w.macs.sweep(int(min(passed, 1<<macOrder/sweepASecond))*sweepASecond, w.stale)
	}
}

// stale says that an entry is too old, or that its bridge is gone.
func (w *worker) stale(e *macEntry) bool {
	br := w.snapshot.bridge(e.key.slot())
	return br == nil || br.age != 0 && w.now-e.seen >= br.age
}

// learn takes in where a frame came from. What it returns is a reason to drop the frame, or kept.
func (w *worker) learn(br *bridge, in *iface, key macKey) reason {
	if key.isMulticast() || key.address() == 0 {
		return kept // nobody's address: VPP, too, lets the frame pass
	}
	if f, ok := br.fixedAt(key); ok {
		switch {
		case f.filter:
			return dropSourceFilter
		case f.out == in.index:
			return kept
		case f.static:
			return dropMACViolation
		}
	}
	e := w.macs.find(key)
	if e == nil {
		w.drops[noteLearned].Add(1)
		w.note(macEntry{key, in.index, w.now})
		w.tell(key, in.index)
		return kept
	}
	if e.out != in.index {
		w.drops[noteMoved].Add(1)
		e.out, e.seen = in.index, w.now
		w.tell(key, in.index)
		return kept
	}
	if e.seen != w.now {
		if e.seen/tellEvery != w.now/tellEvery {
			w.tell(key, in.index)
		}
		e.seen = w.now
	}
	return kept
}

// knows says that learn would change nothing and keep the frame.
func (w *worker) knows(br *bridge, in *iface, key macKey) bool {
	if key.isMulticast() || key.address() == 0 {
		return false
	}
	if f, ok := br.fixedAt(key); ok && (f.filter || f.static || f.out == in.index) {
		return !f.filter && f.out == in.index
	}
	e := w.macs.find(key)
	return e != nil && e.out == in.index && e.seen == w.now
}

// note makes an entry in the MAC table.
func (w *worker) note(e macEntry) {
	if !w.macs.add(e) {
		w.drops[noteTableFull].Add(1)
	}
}

// whereIs says which interface a MAC is behind. What was learned wins over what control only proposed.
func (w *worker) whereIs(br *bridge, k macKey) (f fixedMAC, known bool) {
	f, known = br.fixedAt(k)
	if known && (f.static || f.filter) {
		return f, true
	}
	if e := w.macs.find(k); e != nil && (br.age == 0 || w.now-e.seen < br.age) {
		return fixedMAC{out: e.out}, true
	}
	return f, known
}
