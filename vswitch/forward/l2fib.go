package forward

import (
	"cmp"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/slow"
)

// clockReadInterval is the number of rounds between two readings of the clock: reading it costs half as much as
// forwarding a frame, and a round of a busy worker takes microseconds.
const clockReadInterval = 16

// secondClock counts seconds for the aging of MACs.
type secondClock struct {
	start   time.Time
	seconds uint32
	fresh   int // calls of read until the clock is read again
}

// read returns the seconds since start.
func (c *secondClock) read() uint32 {
	if c.fresh == 0 {
		c.seconds = uint32(time.Since(c.start) / time.Second)
		c.fresh = clockReadInterval
	}
	c.fresh--
	return c.seconds
}

// slept makes the next call read the clock.
func (c *secondClock) slept() { c.fresh = 0 }

// l2fib holds the MACs that a worker knows. Workers send each other the MACs that they learn.
type l2fib struct {
	*view
	macs        *macTable
	secondClock *secondClock
	clock       func() uint32           // reads secondClock
	seconds     uint32                  // of the clock, read once a round
	in, out     []*slow.Ring[macUpdate] // from and to each other worker
}

func newL2FIB(v *view, start time.Time) l2fib {
	c := &secondClock{start: start}
	return l2fib{view: v, macs: newMACTable(), secondClock: c, clock: c.read}
}

// tick updates the MAC table: the time, updates from other workers, and expired entries.
func (l *l2fib) tick() {
	if len(l.snapshot.bridges) == 0 {
		return
	}
	now := l.clock()
	passed := now - l.seconds
	l.seconds = now
	l.applyUpdates()
	if passed > 0 {
		l.macs.sweep(int(min(passed, 1<<macOrder/sweepPerSecond))*sweepPerSecond, l.expired)
	}
}

// expired reports whether an entry is too old, or its bridge domain deleted.
func (l *l2fib) expired(e *macEntry) bool {
	br := l.snapshot.bridge(e.key.slot())
	return br == nil || br.age != 0 && l.seconds-e.seen >= br.age
}

// learn learns the source MAC of a frame. It returns the reason to drop the frame, or noDrop.
func (l *l2fib) learn(br *bridge, in *iface, key macKey) reason {
	if key.isMulticast() || key.address() == 0 {
		return noDrop // invalid source: like VPP, forward the frame without learning
	}
	if f, ok := br.configuredMAC(key); ok {
		switch {
		case f.filter:
			return dropSourceFilter
		case f.out == in.index:
			return noDrop
		case f.static:
			return dropMACViolation
		}
	}
	e := l.macs.find(key)
	if e == nil {
		if l.add(macEntry{key, in.index, l.seconds}, in) {
			l.drops[statLearned].Add(1)
			l.announce(key, in.index)
		}
		return noDrop
	}
	if e.out != in.index {
		l.macs.move(e, in.index)
		e.seen = l.seconds
		l.drops[statMoved].Add(1)
		l.announce(key, in.index)
		return noDrop
	}
	if e.seen != l.seconds {
		if e.seen/announceInterval != l.seconds/announceInterval {
			l.announce(key, in.index)
		}
		e.seen = l.seconds
	}
	return noDrop
}

// isCurrent reports whether learn would accept the frame without a change.
func (l *l2fib) isCurrent(br *bridge, in *iface, key macKey) bool {
	if key.isMulticast() || key.address() == 0 {
		return false
	}
	if f, ok := br.configuredMAC(key); ok && (f.filter || f.static || f.out == in.index) {
		return !f.filter && f.out == in.index
	}
	e := l.macs.find(key)
	return e != nil && e.out == in.index && e.seen == l.seconds
}

// add adds an entry for a new MAC of an interface; false if limits do not permit it.
func (l *l2fib) add(e macEntry, of *iface) bool {
	most := int32(maxLearnedOn)
	if of.l2.splitHorizon != 0 {
		most = maxLearnedInBridge // a tunnel has the MACs of all pods of a node
	}
	added := l.macs.add(e, most)
	if !added {
		l.drops[statTableFull].Add(1)
	}
	return added
}

// lookupMAC returns the interface behind a MAC. Learned entries take precedence over configured ones that are not
// static.
func (l *l2fib) lookup(br *bridge, k macKey) (f macTarget, known bool) {
	f, known = br.configuredMAC(k)
	if known && (f.static || f.filter) {
		return f, true
	}
	if e := l.macs.find(k); e != nil && (br.age == 0 || l.seconds-e.seen < br.age) {
		return macTarget{out: e.out}, true
	}
	return f, known
}

const (
	// macOrder is the binary logarithm of a MAC table's size. At most half of the entries are used, which keeps probing
	// short.
	macOrder = 15
	// maxLearned limits the MACs in a table.
	maxLearned = 1 << (macOrder - 1)
	// maxLearnedInBridge limits the MACs of a bridge domain, so that one domain with a MAC flood does not fill the
	// table.
	maxLearnedInBridge = maxLearned / 2
	// maxLearnedOn limits the MACs of an interface other than a tunnel, so that one pod with a MAC flood does not fill
	// its bridge domain.
	maxLearnedOn = 1024
	// roomSearch is the number of entries that are examined to find one to replace: of the 1024 entries of an interface
	// eight, on average.
	roomSearch = 256
	// sweepPerSecond is the number of entries that are checked for expiry each second: the table takes half a minute.
	sweepPerSecond = 1 << (macOrder - 5)
)

// macKey is a bridge domain's slot and a MAC. 0 is invalid.
type macKey uint64

func macKeyOf(slot uint16, m frame.MAC) macKey {
	return macKey(slot)<<48 | macKey(binary.BigEndian.Uint32(m[:]))<<16 | macKey(binary.BigEndian.Uint16(m[4:]))
}

// macKeyAt is macKeyOf the address at the start of b. It keeps addresses in registers: six bytes that are written in
// two pieces and read in one cause a store-forwarding stall.
func macKeyAt(slot uint16, b []byte) macKey {
	_ = b[5]
	return macKey(slot)<<48 | macKey(binary.BigEndian.Uint32(b))<<16 | macKey(binary.BigEndian.Uint16(b[4:]))
}

func (k macKey) address() uint64 { return uint64(k) & (1<<48 - 1) }

func (k macKey) isMulticast() bool { return k>>40&1 == 1 }

func (k macKey) slot() uint16 { return uint16(k >> 48) }

func (k macKey) mac() (m frame.MAC) {
	binary.BigEndian.PutUint32(m[:], uint32(k>>16))
	binary.BigEndian.PutUint16(m[4:], uint16(k))
	return m
}

// macEntry is a learned MAC.
type macEntry struct {
	key  macKey
	out  uint32
	seen uint32 // last seen, in seconds of the worker's clock
}

// macTable holds the MACs that one worker knows. It uses open addressing with linear probing, and removal leaves no
// tombstones. The hash is seeded, so that a sender cannot choose colliding MACs.
type macTable struct {
	entries  []macEntry
	seed     uint64
	count    int
	byBridge [maxBridges + 1]int32
	byOut    map[uint32]int32 // by interface
	sweepAt  int              // next entry to sweep
	roomAt   int              // next entry to examine for replacement
}

func newMACTable() *macTable {
	return &macTable{entries: make([]macEntry, 1<<macOrder), seed: rand.Uint64(), byOut: make(map[uint32]int32)}
}

func (t *macTable) hash(k macKey) int {
	h := (uint64(k) ^ t.seed) * 0x9e3779b97f4a7c15
	h = (h ^ h>>32) * 0xd6e8feb86659fd93
	return int(h >> (64 - macOrder))
}

// find returns the entry of k, valid until the next call, or nil.
func (t *macTable) find(k macKey) *macEntry {
	for i := t.hash(k); ; i = (i + 1) % len(t.entries) {
		e := &t.entries[i]
		if e.key == k {
			return e
		}
		if e.key == 0 {
			return nil
		}
	}
}

// add adds an entry for a new key, if its interface has less than most. At a limit the entry replaces one of the
// interface with most entries, so that a MAC flood costs the interfaces of the flood their entries, and no other one.
// It returns false without an entry to replace.
func (t *macTable) add(e macEntry, most int32) bool {
	slot := e.key.slot()
	competes := func(*macEntry) bool { return true }
	switch {
	case t.byOut[e.out] >= most:
		competes = func(o *macEntry) bool { return o.out == e.out }
	case t.byBridge[slot] >= maxLearnedInBridge:
		competes = func(o *macEntry) bool { return o.key.slot() == slot }
	case t.count < maxLearned:
		t.insert(e)
		return true
	}
	if !t.makeRoom(e.out, competes) {
		return false
	}
	t.insert(e)
	return true
}

// makeRoom removes an entry for one of an interface. Of the examined entries that compete it is one of the interface
// with most entries, and of these the oldest.
func (t *macTable) makeRoom(out uint32, competes func(*macEntry) bool) bool {
	victim := -1
	for range roomSearch {
		t.roomAt = (t.roomAt + 1) % len(t.entries)
		e := &t.entries[t.roomAt]
		if e.key == 0 || !competes(e) {
			continue
		}
		if victim < 0 || t.isBetterVictim(e, &t.entries[victim]) {
			victim = t.roomAt
		}
	}
	if victim < 0 {
		return false
	}
	if of := t.entries[victim].out; of != out && t.byOut[of] <= t.byOut[out] {
		return false
	}
	t.removeAt(victim)
	return true
}

func (t *macTable) isBetterVictim(a, b *macEntry) bool {
	more := t.byOut[a.out]
	less := t.byOut[b.out]
	if more != less {
		return more > less
	}
	return a.seen < b.seen
}

// insert adds an entry.
func (t *macTable) insert(e macEntry) {
	i := t.hash(e.key)
	for t.entries[i].key != 0 {
		i = (i + 1) % len(t.entries)
	}
	t.entries[i] = e
	t.count++
	t.byBridge[e.key.slot()]++
	t.byOut[e.out]++
}

// move changes the interface of an entry.
func (t *macTable) move(e *macEntry, out uint32) {
	t.leave(e.out)
	t.byOut[out]++
	e.out = out
}

// leave counts one entry less for an interface.
func (t *macTable) leave(out uint32) {
	t.byOut[out]--
	if t.byOut[out] == 0 {
		delete(t.byOut, out)
	}
}

// remove removes the entry of k and reports whether it existed.
func (t *macTable) remove(k macKey) bool {
	for i := t.hash(k); t.entries[i].key != 0; i = (i + 1) % len(t.entries) {
		if t.entries[i].key == k {
			t.removeAt(i)
			return true
		}
	}
	return false
}

// removeAt removes an entry and closes the gap with entries that probed past it.
func (t *macTable) removeAt(gap int) {
	t.byBridge[t.entries[gap].key.slot()]--
	t.leave(t.entries[gap].out)
	t.count--
	size := len(t.entries)
	for i := (gap + 1) % size; t.entries[i].key != 0; i = (i + 1) % size {
		home := t.hash(t.entries[i].key)
		if (i-home+size)%size >= (i-gap+size)%size {
			t.entries[gap] = t.entries[i]
			gap = i
		}
	}
	t.entries[gap] = macEntry{}
}

// sweep checks the next n entries and removes those that match.
func (t *macTable) sweep(n int, goes func(*macEntry) bool) {
	for range min(n, len(t.entries)) {
		// An entry that moved into the gap is not checked yet.
		for t.entries[t.sweepAt].key != 0 && goes(&t.entries[t.sweepAt]) {
			t.removeAt(t.sweepAt)
		}
		t.sweepAt = (t.sweepAt + 1) % len(t.entries)
	}
}

// MACFilter selects learned MACs.
type MACFilter struct {
	Bridge    uint32 // 0: all
	Interface uint32 // NoInterface: all
}

// LearnedMAC is a learned MAC of a bridge domain.
type LearnedMAC struct {
	Bridge    uint32
	MAC       frame.MAC
	Interface uint32
	Age       time.Duration // time since the last frame, in whole seconds
}

// FlushMACs removes learned MACs. It first forwards the frames that wait at the filter's interface, because that may be
// about to leave the bridge domain, and then publishes control's changes, so that MACs are not learned again under the
// old ones. It returns when all workers are done. Run must be running or have ended.
func (s *switching) FlushMACs(f MACFilter) {
	slot, ok := s.bridgeSlots[f.Bridge]
	if !ok && f.Bridge != 0 {
		return
	}
	s.drain(f.Interface)
	s.flush(func(m macEntry) bool {
		return (f.Bridge == 0 || m.key.slot() == slot) && (f.Interface == NoInterface || m.out == f.Interface)
	})
}

// flush removes matching MACs from the tables of all workers. With several workers it does so twice, because a worker
// may receive an update from one that has not flushed yet.
func (s *switching) flush(chosen func(macEntry) bool) {
	s.Publish()
	for range min(len(s.workers), 2) {
		for _, w := range s.workers {
			w.requests.post(func(w *worker) {
				w.l2.fib.applyUpdates()
				w.l2.fib.macs.sweep(len(w.l2.fib.macs.entries), func(m *macEntry) bool { return chosen(*m) })
			})
		}
	}
}

// ForgetMAC removes a learned MAC, if it was last seen on the interface, or on any for NoInterface. It reports whether
// it did. It publishes and waits like FlushMACs.
func (s *switching) ForgetMAC(bridge uint32, m frame.MAC, on uint32) bool {
	slot, ok := s.bridgeSlots[bridge]
	if !ok {
		return false
	}
	s.Publish()
	key := macKeyOf(slot, m)
	found := false
	for _, w := range s.workers {
		w.requests.post(func(w *worker) {
			w.l2.fib.applyUpdates()
			if known := w.l2.fib.macs.find(key); known != nil && !w.l2.fib.expired(known) &&
				(on == NoInterface || on == known.out) {
				found = w.l2.fib.macs.remove(key)
			}
		})
	}
	return found
}

// LearnedMACs lists the learned MACs of a bridge domain, or of all for 0, sorted by bridge domain and MAC. It waits
// like FlushMACs.
func (s *switching) LearnedMACs(bridge uint32) []LearnedMAC {
	slot, ok := s.bridgeSlots[bridge]
	if !ok && bridge != 0 {
		return nil
	}
	var all []LearnedMAC
	for _, w := range s.workers {
		all = append(all, w.learned(slot)...)
	}
	slices.SortFunc(all, func(a, b LearnedMAC) int {
		return cmp.Or(cmp.Compare(a.Bridge, b.Bridge), slices.Compare(a.MAC[:], b.MAC[:]), cmp.Compare(a.Age, b.Age))
	})
	return slices.CompactFunc(all, func(a, b LearnedMAC) bool { return a.Bridge == b.Bridge && a.MAC == b.MAC })
}

// learned copies one worker's MACs of the bridge domain in a slot, or of all for 0. It allocates outside of the worker.
func (w *worker) learned(slot uint16) []LearnedMAC {
	const slack = 256 // MACs learned between the two requests
	n := 0
	w.requests.post(func(w *worker) { n = w.l2.fib.macs.count })
	entries := make([]LearnedMAC, 0, n+slack)
	w.requests.post(func(w *worker) {
		for i := range w.l2.fib.macs.entries {
			m := &w.l2.fib.macs.entries[i]
			if m.key == 0 || slot != 0 && m.key.slot() != slot || len(entries) == cap(entries) || w.l2.fib.expired(m) {
				continue
			}
			entries = append(entries, LearnedMAC{
				Bridge:    w.snapshot.bridge(m.key.slot()).id,
				MAC:       m.key.mac(),
				Interface: m.out,
				Age:       time.Duration(w.l2.fib.seconds-m.seen) * time.Second,
			})
		}
	})
	return entries
}

const (
	// updateRingOrder is the binary logarithm of the pending updates from one worker to another. When the ring is full
	// updates are lost, and the receiver floods until the MAC is announced again.
	updateRingOrder = 9
	// announceInterval is the time in seconds after which an active MAC is announced again; the shortest age is a
	// minute.
	announceInterval = 16
)

// macUpdate is a MAC learned by another worker.
type macUpdate struct {
	key macKey
	out uint32
}

// connect creates a ring between every two workers.
func connect(workers []*worker) {
	for _, to := range workers {
		for _, from := range workers {
			if from != to {
				r := slow.NewRing[macUpdate](updateRingOrder)
				from.l2.fib.out = append(from.l2.fib.out, r)
				to.l2.fib.in = append(to.l2.fib.in, r)
			}
		}
	}
}

// announce sends an update to the other workers: each has its own MAC table and ports.
func (l *l2fib) announce(k macKey, out uint32) {
	for _, r := range l.out {
		if u := r.Reserve(); u != nil {
			*u = macUpdate{k, out}
			r.Commit()
		}
	}
}

// applyUpdates learns from the updates of other workers.
func (l *l2fib) applyUpdates() {
	for _, r := range l.in {
		for range 1 << updateRingOrder {
			u := r.Peek()
			if u == nil {
				break
			}
			l.apply(*u)
			r.Advance()
		}
	}
}

func (l *l2fib) apply(s macUpdate) {
	if e := l.macs.find(s.key); e != nil {
		l.macs.move(e, s.out)
		e.seen = l.seconds
		return
	}
	of := l.snapshot.iface(s.out)
	if of != nil && l.snapshot.bridge(s.key.slot()) != nil {
		l.add(macEntry{s.key, s.out, l.seconds}, of)
	}
}
