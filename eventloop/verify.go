package eventloop

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"
)

// verify is step 13, with Config.Verify: a rebuild by the handlers must give the same desired state, and a downstream
// resync must find no difference.
func (x *executor) verify(f *flight) error {
	if !x.cfg.Verify || x.queue.isGated() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(f.run), commitTimeout)
	defer cancel()
	found := x.compareRebuilt(markInside(ctx))
	if len(x.healing.degraded) == 0 {
		found = append(found, x.committer.drift(ctx)...)
	}
	if len(found) == 0 {
		return nil
	}
	f.rec.Verify = found
	x.cfg.Log.Error("verification found differences", "seq", f.rec.Seq, "event", f.name, "differences", found)
	if x.cfg.OnVerify != nil {
		x.cfg.OnVerify(slices.Clone(found))
	}
	return nil
}

// compareRebuilt rebuilds the desired state and compares it key by key.
func (x *executor) compareRebuilt(ctx context.Context) []string {
	scratch := newTxn(x.state.get)
	for _, h := range x.registry.inOrder(false) {
		if h.resync == nil {
			continue
		}
		scratch.begin(h.name)
		err := h.call(ctx, nil, scratch)
		if _, misuse := scratch.end(); err == nil {
			err = misuse
		}
		if err != nil {
			return []string{fmt.Sprintf("rebuild by %s: %v", h.name, err)}
		}
	}
	rebuilt := make(map[string]any)
	apply(rebuilt, scratch.settings)
	return differences(x.cfg.External, x.state.desired, rebuilt)
}

// differences returns the keys in which two states differ, without values.
func differences(codec ExternalCodec, left, rebuilt map[string]any) []string {
	keys := maps.Clone(left)
	maps.Copy(keys, rebuilt)
	var found []string
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		was, isLeft := left[key]
		now, isRebuilt := rebuilt[key]
		switch {
		case !isRebuilt:
			found = append(found, key+": left by updates, not rebuilt")
		case !isLeft:
			found = append(found, key+": rebuilt, not left by updates")
		case !equal(codec, key, was, now):
			found = append(found, key+": rebuilt with another value")
		}
	}
	return found
}

// equal compares two values, or their JSON.
func equal(codec ExternalCodec, key string, a, b any) bool {
	if reflect.DeepEqual(a, b) {
		return true
	}
	if codec == nil {
		return false
	}
	var left, right []byte
	err := protect(func() (err error) {
		if left, err = codec.Encode(key, a); err == nil {
			right, err = codec.Encode(key, b)
		}
		return err
	})
	return err == nil && bytes.Equal(left, right)
}

// healing schedules resyncs after failures.
type healing struct {
	bounds   *limits
	timer    *time.Timer
	delay    time.Duration // the last delay; 0 after a clean full resync
	next     time.Time     // zero without a scheduled resync
	degraded map[string]bool
}

func newHealing(bounds *limits) healing {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return healing{bounds: bounds, timer: t, degraded: make(map[string]bool)}
}

// heal is step 12: keys that could not be undone are reported and make the loop degraded. A resync is scheduled, with a
// growing delay, until one succeeds.
func (x *executor) heal(f *flight) error {
	for _, key := range f.rec.Stuck {
		x.cfg.Log.Error("key is stuck", "key", key, "seq", f.rec.Seq, "event", f.name)
	}
	x.healing.update(f, x.cfg.Now())
	x.status.heal(slices.Sorted(maps.Keys(x.healing.degraded)), x.healing.next)
	return nil
}

func (h *healing) update(f *flight, now time.Time) {
	clean := len(f.errs) == 0 && len(f.rec.Stuck) == 0
	if f.resync == Full && clean {
		clear(h.degraded)
		h.timer.Stop()
		h.delay = 0
		h.next = time.Time{}
	}
	for _, key := range f.rec.Stuck {
		h.degraded[key] = true
	}
	if len(f.rec.Stuck) > 0 || f.needsHealing || f.resync != None && !clean {
		h.schedule(now)
	}
}

// schedule schedules a resync, unless one is scheduled.
func (h *healing) schedule(now time.Time) {
	if !h.next.IsZero() {
		return
	}
	h.delay = min(max(2*h.delay, h.bounds.minHealing), h.bounds.maxHealing)
	h.next = now.Add(h.delay)
	h.timer.Reset(h.delay)
}
