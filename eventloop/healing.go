package eventloop

import (
	"context"
	"maps"
	"slices"
	"time"
)

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
