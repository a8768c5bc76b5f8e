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

// verify is step 13, if configured: what the handlers would put now must be what
// their updates left, and the machine must need no repair.
func (l *Loop) verify(f *flight) error {
	if !l.cfg.Verify || l.queue.isGated() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(f.run), l.cfg.CommitTimeout)
	defer cancel()
	found := l.compareRebuilt(markInside(ctx))
	if len(l.healing.degraded) == 0 {
		found = append(found, l.drift(ctx)...)
	}
	if len(found) == 0 {
		return nil
	}
	f.rec.Verify = found
	l.cfg.Log.Error("verification found differences", "seq", f.rec.Seq, "event", f.name, "differences", found)
	if l.cfg.OnVerify != nil {
		l.cfg.OnVerify(slices.Clone(found))
	}
	return nil
}

// compareRebuilt rebuilds everything desired and compares it key by key.
func (l *Loop) compareRebuilt(ctx context.Context) []string {
	scratch := newTxn(l.desired)
	for _, h := range l.registry.inOrder(false) {
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
	return l.differences(l.state.desired, rebuilt)
}

// differences names the keys in which two states differ, never their values.
func (l *Loop) differences(left, rebuilt map[string]any) []string {
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
		case !l.equal(key, was, now):
			found = append(found, key+": rebuilt with another value")
		}
	}
	return found
}

// equal compares two values, by their JSON if there is a codec for it.
func (l *Loop) equal(key string, a, b any) bool {
	if reflect.DeepEqual(a, b) {
		return true
	}
	if l.cfg.External == nil {
		return false
	}
	var left, right []byte
	err := protect(func() (err error) {
		if left, err = l.cfg.External.Encode(key, a); err == nil {
			right, err = l.cfg.External.Encode(key, b)
		}
		return err
	})
	return err == nil && bytes.Equal(left, right)
}

// drift asks the Committer what a repair of the machine would do.
func (l *Loop) drift(ctx context.Context) []string {
	d, ok := l.cfg.Committer.(interface {
		Drift(ctx context.Context) ([]string, error)
	})
	if !ok {
		return nil
	}
	var found []string
	err := protect(func() (err error) { found, err = d.Drift(ctx); return err })
	if err != nil {
		found = append(found, fmt.Sprintf("drift: %v", err))
	}
	return found
}

// healing schedules resyncs after failures that left something behind. Its timer
// belongs to the goroutine of Run.
type healing struct {
	bounds   Healing
	timer    *time.Timer
	delay    time.Duration // the last one, 0 while healthy
	next     time.Time     // zero if none is scheduled
	degraded map[string]bool
}

func newHealing(bounds Healing) healing {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return healing{bounds: bounds, timer: t, degraded: make(map[string]bool)}
}

// heal is step 12: what could not be undone is reported by key and makes the loop
// degraded; a resync is scheduled, later each time, until one is clean.
func (l *Loop) heal(f *flight) error {
	h := &l.healing
	clean := len(f.errs) == 0 && len(f.rec.Stuck) == 0
	if f.resync == Full && clean {
		clear(h.degraded)
		h.timer.Stop()
		h.delay, h.next = 0, time.Time{}
	}
	for _, key := range f.rec.Stuck {
		h.degraded[key] = true
		l.cfg.Log.Error("left behind", "key", key, "seq", f.rec.Seq, "event", f.name)
	}
	if len(f.rec.Stuck) > 0 || f.unclean || f.resync != None && !clean {
		h.schedule(l.cfg.Now())
	}
	l.status.heal(slices.Sorted(maps.Keys(h.degraded)), h.next)
	return nil
}

// schedule plans one resync, if none is planned.
func (h *healing) schedule(now time.Time) {
	if !h.next.IsZero() {
		return
	}
	h.delay = min(max(2*h.delay, h.bounds.Min), h.bounds.Max)
	h.next = now.Add(h.delay)
	h.timer.Reset(h.delay)
}

// healingRequest is the resync that was scheduled.
func (l *Loop) healingRequest() *request {
	l.healing.next = time.Time{}
	r, err := l.admitPosted(context.Background(), Resynchronize{Kind: Full, Reason: "healing"})
	if err != nil {
		_, _ = l.refuse(r, err)
		return nil
	}
	return l.queue.start(r)
}
