package kvscheduler

import (
	"fmt"
	"time"
)

// Why explains why an object is not in sync: its last error and retry, and the unmet dependencies down to their roots, one line each. It
// returns no line for an object that is in sync.
func (s *Scheduler) Why(ref Ref) []string {
	w := &whyWalk{s: s, v: s.store.view(), now: s.cfg.Now(), seen: make(map[Ref]bool)}
	w.visit(ref)
	return w.lines
}

type whyWalk struct {
	s     *Scheduler
	v     *snapshot
	now   time.Time
	seen  map[Ref]bool
	lines []string
}

func (w *whyWalk) say(format string, args ...any) {
	w.lines = append(w.lines, fmt.Sprintf(format, args...))
}

func (w *whyWalk) visit(ref Ref) {
	if w.seen[ref] {
		return
	}
	w.seen[ref] = true
	e := w.v.entry(ref)
	if e == nil || e.want == nil && e.have == nil && e.status.Phase != Removing {
		w.say("%s: %s", ref, w.absent(ref))
		return
	}
	st := &e.status
	if st.Err != nil {
		w.say("%s is %s: %v%s", ref, st.Phase, st.Err, w.retry(st))
	}
	switch st.Phase {
	case Drifted:
		w.say("%s differs from what is desired; its repair is planned", ref)
	case Removing:
		w.say("%s is no longer desired, but still there", ref)
	}
	if e.want == nil || st.Phase == InSync || st.Phase == Invalid {
		return
	}
	if e.foreign {
		w.say("%s waits: an object that is not ours holds this name", ref)
	}
	w.deps(e)
}

func (w *whyWalk) deps(e *entry) {
	k := w.s.kinds[e.ref.Kind]
	for _, d := range k.deps(e.ref.Name, e.want) {
		if d.Any != nil {
			if !w.served(d.Any) {
				w.say("%s waits for %s: no such object is applied", e.ref, d)
			}
			continue
		}
		if _, _, ok := w.v.Applied(d.On); ok {
			continue
		}
		w.say("%s waits for %s: %s", e.ref, d, w.absent(d.On))
		if x := w.v.entry(d.On); x != nil {
			w.visit(d.On)
		}
	}
}

func (w *whyWalk) served(sel *Select) bool {
	k := w.s.kinds[sel.Kind]
	found := false
	w.v.each(sel.Kind, func(e *entry) bool {
		if e.have == nil {
			return true
		}
		name, has := k.Bucket(e.ref.Name, e.have)
		found = has && name == sel.Bucket && (sel.Match == nil || sel.Match(e.ref.Name, e.have))
		return !found
	})
	return found
}

// absent says why an object is not applied, without its dependencies.
func (w *whyWalk) absent(ref Ref) string {
	k := w.s.kinds[ref.Kind]
	e := w.v.entry(ref)
	switch {
	case k == nil:
		return "no such kind"
	case e != nil && e.status.Phase == Failed:
		return "it failed"
	case e != nil && e.want != nil:
		return "it is " + e.status.Phase.String()
	case !k.backed:
		return "no object of that name was seen or is desired"
	}
	return "no desired object of that name"
}

func (w *whyWalk) retry(st *Status) string {
	switch {
	case st.Phase != Failed && st.Phase != Removing:
		return ""
	case st.RetryAt.IsZero():
		return fmt.Sprintf(" (%d failed, no retry before something changes)", st.Attempt)
	}
	return fmt.Sprintf(" (%d failed, next retry in %s)", st.Attempt, max(0, st.RetryAt.Sub(w.now)).Round(time.Millisecond))
}
