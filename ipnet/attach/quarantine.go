package attach

import (
	"maps"
	"slices"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// SetWithheld sets the attachments whose objects in the dataplane are not desired. It is called before the loop runs; Withhold
// changes them later.
func (ps *Pods) SetWithheld(keys []pod.Key) { ps.withheld.Store(setOf(keys)) }

// WithholdsOthers reports whether the withheld attachments differ from these.
func (ps *Pods) WithholdsOthers(keys []pod.Key) bool {
	return !maps.Equal(*ps.withheld.Load(), *setOf(keys))
}

// Withhold withholds the objects of these attachments from the dataplane, and desires those of all other attachments.
func (ps *Pods) Withhold(keys []pod.Key, t *eventloop.Txn) {
	before := ps.withheld.Swap(setOf(keys))
	t.OnRollback(func() error { ps.withheld.Store(before); return nil })
}

// forget ends the withholding of an attachment that is deleted.
func (ps *Pods) forget(key pod.Key, t *eventloop.Txn) {
	before := ps.withheld.Load()
	if !(*before)[key] {
		return
	}
	after := maps.Clone(*before)
	delete(after, key)
	ps.withheld.Store(&after)
	t.OnRollback(func() error { ps.withheld.Store(before); return nil })
}

// desirable returns the values of an attachment without those that are withheld.
func (ps *Pods) desirable(key pod.Key, v desired.Values) desired.Values {
	if !(*ps.withheld.Load())[key] {
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
