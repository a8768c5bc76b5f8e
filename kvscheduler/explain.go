package kvscheduler

import (
	"cmp"
	"fmt"
	"slices"
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

// Why explains why an object is not in sync: its last error and retry, and the unmet dependencies down to their roots.
// It returns no reason for an object that is in sync.
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
	return fmt.Sprintf(" (%d failed, next retry in %s)", st.Attempt,
		max(0, st.RetryAt.Sub(w.now)).Round(time.Millisecond))
}

// Relation leads from an object to one that it depends on.
type Relation struct {
	From, To Ref
	Label    string // of the dependency
	Met      bool   // To is applied
}

// Neighbours returns the objects at most depth relations away from the given ones, in both directions, the given ones
// included, sorted by distance and key; and the relations between them. If there are more than most, the farthest are
// left out and counted in omitted. An object that is only named by a dependency is a neighbour, too. A dependency on
// any object of a bucket leads to each candidate; without one it leads to a Ref with a name that says so.
func (s *Scheduler) Neighbours(around []Ref, depth, most int) (refs []Ref, relations []Relation, omitted int) {
	w := relationWalk{s: s, v: s.store.view(), members: make(map[Kind]map[string][]*entry)}
	at := make(map[Ref][]int)
	for k := range s.kinds {
		w.v.each(k, func(e *entry) bool { w.relate(e); return true })
	}
	for i, r := range w.relations {
		at[r.From] = append(at[r.From], i)
		at[r.To] = append(at[r.To], i)
	}
	distance := make(map[Ref]int)
	for _, r := range around {
		distance[r] = 0
	}
	for queue := slices.Clone(around); len(queue) > 0; queue = queue[1:] {
		for _, i := range at[queue[0]] {
			for _, to := range []Ref{w.relations[i].From, w.relations[i].To} {
				if _, seen := distance[to]; !seen && distance[queue[0]] < depth {
					distance[to] = distance[queue[0]] + 1
					queue = append(queue, to)
				}
			}
		}
	}
	for r := range distance {
		refs = append(refs, r)
	}
	slices.SortFunc(refs, func(a, b Ref) int {
		return cmp.Or(distance[a]-distance[b], cmp.Compare(a.String(), b.String()))
	})
	if most > 0 && len(refs) > most {
		omitted = len(refs) - most
		for _, r := range refs[most:] {
			delete(distance, r)
		}
		refs = refs[:most]
	}
	for _, r := range w.relations {
		_, from := distance[r.From]
		if _, to := distance[r.To]; from && to {
			relations = append(relations, r)
		}
	}
	slices.SortFunc(relations, func(a, b Relation) int {
		return cmp.Or(cmp.Compare(a.From.String(), b.From.String()), cmp.Compare(a.To.String(), b.To.String()),
			cmp.Compare(a.Label, b.Label))
	})
	return refs, relations, omitted
}

// relationWalk collects the relations of a snapshot.
type relationWalk struct {
	s         *Scheduler
	v         *snapshot
	relations []Relation
	members   map[Kind]map[string][]*entry // by bucket; of the kinds that were asked for
}

// relate adds the relations of one object: of its desired value, or else of the applied one.
func (w *relationWalk) relate(e *entry) {
	value := e.want
	if value == nil && !e.foreign {
		value = e.have
	}
	if value == nil || e.status.Phase == Invalid {
		return
	}
	for _, d := range w.s.kinds[e.ref.Kind].deps(e.ref.Name, value) {
		if d.Any == nil {
			w.add(Relation{From: e.ref, To: d.On, Label: d.Label})
			continue
		}
		candidates := w.candidates(e.ref, d.Any)
		for _, c := range candidates {
			w.add(Relation{From: e.ref, To: c, Label: d.Label})
		}
		if len(candidates) == 0 {
			w.add(Relation{From: e.ref, To: Ref{Kind: d.Any.Kind, Name: "any of " + d.Any.Bucket}, Label: d.Label})
		}
	}
}

func (w *relationWalk) add(r Relation) {
	_, _, r.Met = w.v.Applied(r.To)
	w.relations = append(w.relations, r)
}

// candidates returns the objects that can serve a dependency on any object of a bucket.
func (w *relationWalk) candidates(of Ref, sel *Select) (refs []Ref) {
	if w.members[sel.Kind] == nil {
		w.members[sel.Kind] = w.bucketsOf(sel.Kind)
	}
	for _, e := range w.members[sel.Kind][sel.Bucket] {
		if e.ref != of && (sel.Match == nil || sel.Match(e.ref.Name, e.effective())) {
			refs = append(refs, e.ref)
		}
	}
	return refs
}

func (w *relationWalk) bucketsOf(kind Kind) map[string][]*entry {
	buckets := make(map[string][]*entry)
	k := w.s.kinds[kind]
	if k == nil {
		return buckets
	}
	w.v.each(kind, func(e *entry) bool {
		if v := e.effective(); v != nil {
			if bucket, has := k.Bucket(e.ref.Name, v); has {
				buckets[bucket] = append(buckets[bucket], e)
			}
		}
		return true
	})
	return buckets
}

// effective is the desired value, or else the applied one.
func (e *entry) effective() any {
	if e.want != nil {
		return e.want
	}
	return e.have
}
