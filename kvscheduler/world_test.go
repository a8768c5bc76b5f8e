package kvscheduler_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"pgregory.net/rapid"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/kvscheduler/kvschedulertest"
)

type (
	thing = kvschedulertest.Thing
	ref   = kvscheduler.Ref
)

// world is a scheduler at work on a machine of three kinds in two lanes: a and b in one, c in the other.
type world struct {
	t       rapid.TB
	m       *kvschedulertest.Machine
	s       *kvscheduler.Scheduler
	kinds   map[string]kvschedulertest.KindOf[thing]
	end     func()
	desired map[ref]thing
	unread  bool // changes have fields that Equal ignores
}

// start brings up a world; change may adapt what is otherwise a default.
func start(t rapid.TB, m *kvschedulertest.Machine, change func(*kvscheduler.Config)) *world {
	t.Helper()
	cfg := kvscheduler.Limited(kvscheduler.Limits{NoJitter: true})
	if change != nil {
		change(&cfg)
	}
	w := &world{
		t:       t,
		m:       m,
		s:       kvscheduler.New(cfg),
		kinds:   make(map[string]kvschedulertest.KindOf[thing]),
		desired: make(map[ref]thing),
	}
	for kind, lane := range map[string]string{"a": "one", "b": "one", "c": "two"} {
		d := m.Descriptor(kind, lane)
		if kind == "b" {
			d.Backend = kvschedulertest.FullDump{Backend: d.Backend}
		}
		k, err := kvschedulertest.Register(w.s, d)
		must(t, err)
		w.kinds[kind] = k
	}
	must2(kvschedulertest.Register(w.s, kvscheduler.Descriptor[string, struct{}]{
		Name: "seen", Equal: func(a, b string) bool { return a == b },
	}))(t)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := w.s.Run(ctx); err != nil {
			t.Errorf("run: %v", err)
		}
	})
	w.end = sync.OnceFunc(func() { cancel(); wg.Wait() })
	return w
}

func must(t rapid.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func must2[V any](_ V, err error) func(rapid.TB) {
	return func(t rapid.TB) { t.Helper(); must(t, err) }
}

func put(key string, v thing) kvscheduler.Object {
	r, err := kvscheduler.ParseRef(key)
	if err != nil {
		panic(err)
	}
	return kvschedulertest.KindOf[thing](r.Kind).Put(r.Name, v)
}

func del(key string) kvscheduler.Object {
	r, _ := kvscheduler.ParseRef(key)
	return kvschedulertest.KindOf[thing](r.Kind).Del(r.Name)
}

func key(k string) ref {
	r, _ := kvscheduler.ParseRef(k)
	return r
}

func applied(v kvscheduler.View, of string) (thing, bool) {
	value, _, _ := v.Applied(key(of))
	have, is := value.(thing)
	return have, is
}

func (w *world) commit(mode kvscheduler.Mode, set ...kvscheduler.Object) (*kvscheduler.Record, error) {
	return w.s.Commit(context.Background(), kvscheduler.Txn{Source: "test", Label: "test", Mode: mode, Set: set})
}

// put commits and insists on success.
func (w *world) put(set ...kvscheduler.Object) *kvscheduler.Record {
	w.t.Helper()
	rec, err := w.commit(kvscheduler.BestEffort, set...)
	must(w.t, err)
	return rec
}

func (w *world) noWrong() {
	w.t.Helper()
	if wrong := w.m.Wrong(); len(wrong) > 0 {
		w.history()
		w.t.Fatalf("broken rules:\n%s", strings.Join(wrong[:min(5, len(wrong))], "\n"))
	}
}

// quiet waits until no object is failed, drifted or being removed, and none that is pending has all that it waits for.
func (w *world) quiet() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	for {
		var refs []ref
		for k := range w.kinds {
			for name := range w.s.View().All(kvscheduler.Kind(k)) {
				refs = append(refs, ref{Kind: kvscheduler.Kind(k), Name: name})
			}
		}
		err := kvschedulertest.Wait(ctx, w.s, refs, kvscheduler.Absent, kvscheduler.Pending, kvscheduler.Invalid,
			kvscheduler.InSync, kvscheduler.Observed)
		if err == nil && !w.isAboutToCreate(refs) {
			return
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err != nil {
			w.history()
			for _, r := range refs {
				st, _ := w.s.View().Status(r)
				w.t.Logf("%s: %v %v retry %v", r, st.Phase, st.Err, st.RetryAt)
			}
			w.t.Fatal(err)
		}
	}
}

func (w *world) isAboutToCreate(refs []ref) bool {
	v := w.s.View()
	return slices.ContainsFunc(refs, func(r ref) bool {
		st, _ := v.Status(r)
		return st.Phase == kvscheduler.Pending && len(st.Missing) == 0
	})
}

// history logs what was done, for a failing test.
func (w *world) history() {
	for r := range w.s.Log(0) {
		w.t.Logf("#%d %s at %s err=%q", r.Seq, r.Origin, r.Start.Format("05.000"), r.Err)
		for _, o := range r.Ops {
			w.t.Logf("   %d %s %s why=%s: %s %s %+v -> %+v", o.Level, o.Verb, o.Ref, o.Why, o.Outcome, o.Err, o.Old,
				o.New)
		}
	}
}

func ops(rec *kvscheduler.Record) []string {
	out := make([]string, len(rec.Ops))
	for i, o := range rec.Ops {
		out[i] = fmt.Sprintf("%d %s %s", o.Level, o.Verb, o.Ref)
	}
	return out
}

// expected computes what must be there: every desired, valid value whose dependencies are there, recursively.
func expected(desired map[ref]thing) map[ref]thing {
	out := maps.Clone(desired)
	for again := true; again; {
		again = false
		for r, v := range out {
			if v.Bad || !satisfied(out, v) {
				delete(out, r)
				again = true
			}
		}
	}
	return out
}

func satisfied(live map[ref]thing, v thing) bool {
	for _, need := range strings.Fields(v.Needs + " " + v.Follows + " " + v.Behind) {
		if _, there := live[key(need)]; !there {
			return false
		}
	}
	return (v.Near == "" || hasMember(live, v.Near, func(o thing) bool { return o.Version%2 == 0 })) &&
		(v.BehindAny == "" || hasMember(live, v.BehindAny, func(thing) bool { return true }))
}

func hasMember(live map[ref]thing, bucket string, serves func(thing) bool) bool {
	for r, o := range live {
		if r.Kind == nearKind(bucket) && o.In() == bucket && serves(o) {
			return true
		}
	}
	return false
}

// nearKind: buckets carry the kind of their members in front.
func nearKind(bucket string) kvscheduler.Kind { return kvscheduler.Kind(bucket[:1]) }

// faults makes about percent of the operations go wrong, the same way for the same seed, object and attempt.
func faults(
	seed uint64, percent uint64, kinds ...kvschedulertest.Fault,
) func(kvscheduler.Verb, ref) kvschedulertest.Fault {
	var mu sync.Mutex
	count := make(map[string]int)
	return func(verb kvscheduler.Verb, r ref) kvschedulertest.Fault {
		mu.Lock()
		defer mu.Unlock()
		id := verb.String() + r.String()
		count[id]++
		h := fnv.New64a()
		fmt.Fprintf(h, "%d %s %d", seed, id, count[id])
		x := h.Sum64() >> 8
		if x%100 >= percent {
			return kvschedulertest.Fine
		}
		return kinds[x/100%uint64(len(kinds))]
	}
}
