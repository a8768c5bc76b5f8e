package attach

import (
	"maps"
	"slices"
	"sync/atomic"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// withheld are the attachments with objects that the dataplane must not get: it crashed while they were created. The
// set is replaced, never changed, so any goroutine may read it.
type withheld struct {
	keys atomic.Pointer[map[pod.Key]bool]
}

// set replaces the set before the loop runs.
func (w *withheld) set(keys []pod.Key) { w.keys.Store(setOf(keys)) }

// has reports whether an attachment is withheld.
func (w *withheld) has(key pod.Key) bool { return (*w.keys.Load())[key] }

// equals reports whether these are the withheld attachments.
func (w *withheld) equals(keys []pod.Key) bool { return maps.Equal(*w.keys.Load(), *setOf(keys)) }

// replace replaces the set.
func (w *withheld) replace(keys []pod.Key, t *eventloop.Txn) {
	before := w.keys.Swap(setOf(keys))
	t.OnRollback(func() error { w.keys.Store(before); return nil })
}

// remove ends the withholding of an attachment that is deleted.
func (w *withheld) remove(key pod.Key, t *eventloop.Txn) {
	before := w.keys.Load()
	if !(*before)[key] {
		return
	}
	after := maps.Clone(*before)
	delete(after, key)
	w.keys.Store(&after)
	t.OnRollback(func() error { w.keys.Store(before); return nil })
}

// permitted returns the values of an attachment without the withheld ones.
func (w *withheld) permitted(key pod.Key, v desired.Values) desired.Values {
	if !w.has(key) {
		return v
	}
	return slices.DeleteFunc(v, func(s eventloop.Setting) bool { return wire.IsDataplane(s.Key) })
}

func setOf(keys []pod.Key) *map[pod.Key]bool {
	set := make(map[pod.Key]bool, len(keys))
	for _, key := range keys {
		set[key] = true
	}
	return &set
}
