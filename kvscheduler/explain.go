package kvscheduler

import (
	"fmt"
	"time"
)

// Reason is one reason why an object is not in sync.
type Reason struct {
	Ref      Ref
	Phase    Phase  // Absent if the object is neither desired nor applied
	Text     string // the whole reason as a line, which begins with Ref
	WaitsFor string // an unmet dependency; "": the reason is another one
	Err      error  // of the last operation
	Attempt  int    // that failed
	RetryAt  time.Time
}

// Why explains why an object is not in sync: its last error and retry, and the unmet dependencies down to their roots. It returns no reason
// for an object that is in sync.
func (s *Scheduler) Why(ref Ref) []Reason {
	w := &whyWalk{s: s, v: s.store.view(), now: s.cfg.Now(), seen: make(map[Ref]bool)}
	w.visit(ref)
	return w.reasons
}

type whyWalk struct {
	s       *Scheduler
	v       *snapshot
	now     time.Time
	seen    map[Ref]bool
	reasons []Reason
}

// say adds a reason. The text follows the key of the object.
func (w *whyWalk) say(r Reason, format string, args ...any) {
	r.Text = r.Ref.String() + fmt.Sprintf(format, args...)
	w.reasons = append(w.reasons, r)
}

func (w *whyWalk) visit(ref Ref) {
	if w.seen[ref] {
		return
	}
	w.seen[ref] = true
	e := w.v.entry(ref)
	if e == nil || e.want == nil && e.have == nil && e.status.Phase != Removing {
		w.say(Reason{Ref: ref}, ": %s", w.absent(ref))
		return
	}
	st := &e.status
	r := Reason{Ref: ref, Phase: st.Phase}
	if st.Err != nil {
		failed := Reason{Ref: ref, Phase: st.Phase, Err: st.Err, Attempt: st.Attempt, RetryAt: st.RetryAt}
		w.say(failed, " is %s: %v%s", st.Phase, st.Err, w.retry(st))
	}
	switch st.Phase {
	case Drifted:
		w.say(r, " differs from what is desired; its repair is planned")
	case Removing:
		w.say(r, " is no longer desired, but still there")
	}
	if e.want == nil || st.Phase == InSync || st.Phase == Invalid {
		return
	}
	if e.foreign {
		w.say(r, " waits: an object that is not ours holds this name")
	}
	w.deps(e)
}

func (w *whyWalk) deps(e *entry) {
	k := w.s.kinds[e.ref.Kind]
	for _, d := range k.deps(e.ref.Name, e.want) {
		r := Reason{Ref: e.ref, Phase: e.status.Phase, WaitsFor: d.String()}
		if d.Any != nil {
			if !w.served(d.Any) {
				w.say(r, " waits for %s: no such object is applied", d)
			}
			continue
		}
		if _, _, ok := w.v.Applied(d.On); ok {
			continue
		}
		w.say(r, " waits for %s: %s", d, w.absent(d.On))
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
