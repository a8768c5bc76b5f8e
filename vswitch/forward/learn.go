package forward

import (
	"cmp"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weftnet/weft/vswitch/frame"
)

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
		return kept // not a unicast address: VPP, too, lets the frame pass
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

const (
	// macOrder sizes a MAC table: 1<<macOrder places, of which at most half are taken, so that probing stays short.
	macOrder = 15
	// maxLearned bounds the MACs that are learned in all.
	maxLearned = 1 << (macOrder - 1)
	// maxLearnedInBridge leaves room for others where one bridge's members send from ever new MACs.
	maxLearnedInBridge = maxLearned / 2
	// sweepASecond is how much of the table is looked through for MACs that are too old: all of it in half a minute.
	sweepASecond = 1 << (macOrder - 5)
)

// macKey is a bridge's slot and a MAC. 0 is none.
type macKey uint64

func macKeyOf(slot uint16, m frame.MAC) macKey {
	return macKey(slot)<<48 | macKey(binary.BigEndian.Uint32(m[:]))<<16 | macKey(binary.BigEndian.Uint16(m[4:]))
}

// macKeyAt is macKeyOf of the address that b begins with. Addresses of frames go through registers only: six bytes that are
// written in two pieces and read in one make the processor wait.
func macKeyAt(slot uint16, b []byte) macKey {
	_ = b[5]
	return macKey(slot)<<48 | macKey(binary.BigEndian.Uint32(b))<<16 | macKey(binary.BigEndian.Uint16(b[4:]))
}

// address is the key without the bridge.
func (k macKey) address() uint64 { return uint64(k) & (1<<48 - 1) }

func (k macKey) isMulticast() bool { return k>>40&1 == 1 }

func (k macKey) slot() uint16 { return uint16(k >> 48) }

func (k macKey) mac() (m frame.MAC) {
	binary.BigEndian.PutUint32(m[:], uint32(k>>16))
	binary.BigEndian.PutUint16(m[4:], uint16(k))
	return m
}

// macEntry says where a MAC was seen last, and when.
type macEntry struct {
	key  macKey
	out  uint32
	seen uint32 // seconds of the worker's clock
}

// macTable holds what a worker has learned. It is the worker's alone: open addressing with linear probing, and nothing left
// behind by what is removed. Its hash is seeded, so that a sender cannot choose MACs that make the probing long.
type macTable struct {
	places   []macEntry
	seed     uint64
	count    int
	byBridge [maxBridges + 1]int32
	hand     int // where sweeping goes on
}

func newMACTable() *macTable {
	return &macTable{places: make([]macEntry, 1<<macOrder), seed: rand.Uint64()}
}

func (t *macTable) place(k macKey) int {
	h := (uint64(k) ^ t.seed) * 0x9e3779b97f4a7c15
	h = (h ^ h>>32) * 0xd6e8feb86659fd93
	return int(h >> (64 - macOrder))
}

// find returns the entry of k, to be read and changed until the next call; nil: there is none.
func (t *macTable) find(k macKey) *macEntry {
	for i := t.place(k); ; i = (i + 1) % len(t.places) {
		e := &t.places[i]
		if e.key == k {
			return e
		}
		if e.key == 0 {
			return nil
		}
	}
}

// add makes an entry for k, which has none; false: there are too many.
func (t *macTable) add(e macEntry) bool {
	n := &t.byBridge[e.key.slot()]
	if t.count >= maxLearned || *n >= maxLearnedInBridge {
		return false
	}
	i := t.place(e.key)
	for t.places[i].key != 0 {
		i = (i + 1) % len(t.places)
	}
	t.places[i] = e
	t.count++
	*n++
	return true
}

// remove forgets the entry of k, if there is one.
func (t *macTable) remove(k macKey) bool {
	for i := t.place(k); t.places[i].key != 0; i = (i + 1) % len(t.places) {
		if t.places[i].key == k {
			t.removeAt(i)
			return true
		}
	}
	return false
}

// removeAt frees a place and closes the gap: entries that probed past it move up.
func (t *macTable) removeAt(gap int) {
	t.byBridge[t.places[gap].key.slot()]--
	t.count--
	size := len(t.places)
	for i := (gap + 1) % size; t.places[i].key != 0; i = (i + 1) % size {
		home := t.place(t.places[i].key)
		if (i-home+size)%size >= (i-gap+size)%size {
			t.places[gap] = t.places[i]
			gap = i
		}
	}
	t.places[gap] = macEntry{}
}

// sweep looks at the next n places and removes what goes says.
func (t *macTable) sweep(n int, goes func(*macEntry) bool) {
	for range min(n, len(t.places)) {
		// What moves up into a freed place has not been looked at.
		for t.places[t.hand].key != 0 && goes(&t.places[t.hand]) {
			t.removeAt(t.hand)
		}
		t.hand = (t.hand + 1) % len(t.places)
	}
}

// MACFilter chooses learned MACs.
type MACFilter struct {
	Bridge    uint32 // 0: of all
	Interface uint32 // NoInterface: on all
}

// LearnedMAC is a MAC that was seen in a bridge domain.
type LearnedMAC struct {
	Bridge    uint32
	MAC       frame.MAC
	Interface uint32
	Age       time.Duration // since it was seen last, in whole seconds
}

// FlushMACs forgets learned MACs. It publishes control's changes first, so that what they forbid is not learned again, and
// returns when all workers have done so, which needs Run to run or to have ended. What waits at the filter's interface is
// taken in before the changes, one of which may be that it leaves the bridge domain.
func (e *Engine) FlushMACs(f MACFilter) {
	slot, ok := e.bridgeSlots[f.Bridge]
	if !ok && f.Bridge != 0 {
		return
	}
	e.drain(f.Interface)
	e.flush(func(m macEntry) bool {
		return (f.Bridge == 0 || m.key.slot() == slot) && (f.Interface == NoInterface || m.out == f.Interface)
	})
}

// flush removes what is chosen from all workers' tables. Several workers do it twice: one may hear from another, whose turn is
// later, of what it has just forgotten.
func (e *Engine) flush(chosen func(macEntry) bool) {
	e.Publish()
	for range min(len(e.workers), 2) {
		for _, w := range e.workers {
			w.post(func(w *worker) {
				w.hearNews()
				w.macs.sweep(len(w.macs.places), func(m *macEntry) bool { return chosen(*m) })
			})
		}
	}
}

// ForgetMAC forgets one learned MAC, if it was seen on that interface, or on any for NoInterface; false: there is none. It
// publishes and waits as FlushMACs does.
func (e *Engine) ForgetMAC(bridge uint32, m frame.MAC, on uint32) bool {
	slot, ok := e.bridgeSlots[bridge]
	if !ok {
		return false
	}
	e.Publish()
	key, found := macKeyOf(slot, m), false
	for _, w := range e.workers {
		w.post(func(w *worker) {
			w.hearNews()
			if known := w.macs.find(key); known != nil && !w.stale(known) && (on == NoInterface || on == known.out) {
				found = w.macs.remove(key)
			}
		})
	}
	return found
}

// LearnedMACs lists what a bridge domain has learned, or all for 0, by bridge domain and MAC. It waits as FlushMACs does.
func (e *Engine) LearnedMACs(bridge uint32) []LearnedMAC {
	slot, ok := e.bridgeSlots[bridge]
	if !ok && bridge != 0 {
		return nil
	}
	var all []LearnedMAC
	for _, w := range e.workers {
		all = append(all, w.learned(slot)...)
	}
	slices.SortFunc(all, func(a, b LearnedMAC) int {
		return cmp.Or(cmp.Compare(a.Bridge, b.Bridge), slices.Compare(a.MAC[:], b.MAC[:]), cmp.Compare(a.Age, b.Age))
	})
	return slices.CompactFunc(all, func(a, b LearnedMAC) bool { return a.Bridge == b.Bridge && a.MAC == b.MAC })
}

// learned copies one worker's MACs of the bridge in a slot, or all for 0. The caller's goroutine brings the memory.
func (w *worker) learned(slot uint16) []LearnedMAC {
	const slack = 256 // what may be learned between the two letters
	n := 0
	w.post(func(w *worker) { n = w.macs.count })
	entries := make([]LearnedMAC, 0, n+slack)
	w.post(func(w *worker) {
		for i := range w.macs.places {
			m := &w.macs.places[i]
			if m.key == 0 || slot != 0 && m.key.slot() != slot || len(entries) == cap(entries) || w.stale(m) {
				continue
			}
			entries = append(entries, LearnedMAC{Bridge: w.snapshot.bridge(m.key.slot()).id, MAC: m.key.mac(), Interface: m.out,
				Age: time.Duration(w.now-m.seen) * time.Second})
		}
	})
	return entries
}

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
