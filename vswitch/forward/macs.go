package forward

import (
	"cmp"
	"slices"
	"time"

	"github.com/weftnet/weft/vswitch/frame"
)

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
