package kvscheduler_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/kvscheduler/kvschedulertest"
)

// listed is a backend with fixed objects that records its calls. looks is called by each dump and read.
type listed struct {
	objects map[string]int
	err     error
	looks   func(view kvscheduler.View, names []string)
	panics  bool
	refuses error // of each operation
	calls   *[]string
}

func (b listed) do(verb string, batch []intItem) {
	for i := range batch {
		*b.calls = append(*b.calls,
			fmt.Sprintf("%s %s want=%d have=%d meta=%d", verb, batch[i].Name, batch[i].Want, batch[i].Have,
				batch[i].Meta))
		batch[i].Err = b.refuses
		if verb == "create" {
			batch[i].NewMeta = 40 + batch[i].Want
		}
	}
}

func (b listed) Create(_ context.Context, batch []intItem) { b.do("create", batch) }
func (b listed) Update(_ context.Context, batch []intItem) { b.do("update", batch) }
func (b listed) Delete(_ context.Context, batch []intItem) { b.do("delete", batch) }

func (b listed) Dump(_ context.Context, view kvscheduler.View) iter.Seq2[kvscheduler.Actual[int, int], error] {
	return b.Read(context.Background(), view, nil)
}

func (b listed) Read(
	_ context.Context, view kvscheduler.View, names []string,
) iter.Seq2[kvscheduler.Actual[int, int], error] {
	if b.panics {
		panic("nil map")
	}
	if b.looks != nil {
		b.looks(view, names)
	}
	return func(yield func(kvscheduler.Actual[int, int], error) bool) {
		for name, v := range b.objects {
			if (names == nil || slices.Contains(names, name)) &&
				!yield(kvscheduler.Actual[int, int]{Name: name, V: v, Meta: 100 + v}, nil) {
				return
			}
		}
		if b.err != nil {
			yield(kvscheduler.Actual[int, int]{}, b.err)
		}
	}
}

// withListed runs a scheduler with these kinds; change may adapt their descriptors.
func withListed(
	t *testing.T, backends map[string]listed, change func(*kvscheduler.Descriptor[int, int]),
) (s *kvscheduler.Scheduler, calls *[]string) {
	t.Helper()
	s = kvscheduler.New(kvscheduler.Config{Sources: []string{"never ready"}})
	calls = new([]string)
	for kind, b := range backends {
		b.calls = calls
		d := kvscheduler.Descriptor[int, int]{Name: kind, Equal: func(a, b int) bool { return a == b }, Backend: b}
		if change != nil {
			change(&d)
		}
		must2(kvschedulertest.Register(s, d))(t)
	}
	runScheduler(t, s)
	return s, calls
}

// runScheduler runs s until the test ends.
func runScheduler(t *testing.T, s *kvscheduler.Scheduler) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = s.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
}

func intAt(object string, v int) kvscheduler.Object {
	r := key(object)
	return kvschedulertest.KindOf[int](r.Kind).Put(r.Name, v)
}

// A backend may find out by the dump of another kind what its own objects are.
func TestADumpSeesTheDumpsOfTheKindsBeforeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var applied any
		var handle any
		all := make(map[string]kvscheduler.Phase)
		var gone bool
		first := listed{
			objects: map[string]int{"1": 1, "2": 2},
			looks:   func(kvscheduler.View, []string) { <-time.After(time.Second) },
		}
		second := listed{looks: func(view kvscheduler.View, _ []string) {
			applied, handle, _ = view.Applied(key("first/2"))
			_, _, there := view.Applied(key("first/gone"))
			gone = !there
			for name, st := range view.All("first") {
				all[name] = st.Phase
			}
		}}
		s, _ := withListed(t, map[string]listed{"first": first, "second": second},
			func(d *kvscheduler.Descriptor[int, int]) {
				if d.Name == "second" {
					d.After = []string{"first", "not registered"}
				}
			})
		must(t,
			s.Stage(t.Context(), kvscheduler.Txn{
				Source: "test",
				Set:    []kvscheduler.Object{intAt("first/1", 1), intAt("first/gone", 3)},
			}))
		must2(s.Resync(t.Context(), kvscheduler.ResyncOpt{}))(t)
		if applied != 2 || handle != 102 || !gone {
			t.Errorf("first/2 is %v with handle %v; first/gone is missing: %t", applied, handle, gone)
		}
		if want := map[string]kvscheduler.Phase{"1": kvscheduler.Pending, "2": kvscheduler.Observed}; !maps.Equal(all,
			want) {
			t.Errorf("all are %v, want %v", all, want)
		}
	})
}

func TestAReadOfNamedObjectsSeesTheViewOfTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var names []string
		var other, read any
		var all int
		first := listed{objects: map[string]int{"1": 1, "2": 2}}
		second := listed{looks: func(view kvscheduler.View, some []string) {
			names = some
			other, _, _ = view.Applied(key("first/2"))
			read, _, _ = view.Applied(key("first/1"))
			all = 0
			for range view.All("first") {
				all++
			}
		}}
		s, _ := withListed(t, map[string]listed{"first": first, "second": second},
			func(d *kvscheduler.Descriptor[int, int]) {
				if d.Name == "second" {
					d.After = []string{"first"}
					d.Deps = func(string, int) []kvscheduler.Dep { return []kvscheduler.Dep{{On: key("first/1")}} }
				}
			})
		must2(s.Resync(t.Context(), kvscheduler.ResyncOpt{}))(t)
		must2(s.Commit(t.Context(), kvscheduler.Txn{Source: "test", Set: []kvscheduler.Object{intAt("second/x", 7)}}))(
			t)
		must2(s.Resync(t.Context(), kvscheduler.ResyncOpt{Refs: []ref{key("second/x")}}))(t)
		if !slices.Equal(names, []string{"x"}) || other != 2 || read != 1 || all != 2 {
			t.Errorf("read are %v; the view has first/2 %v, first/1 %v, and %d objects", names, other, read, all)
		}
	})
}

func TestAFailedDumpChangesNothingOfItsKind(t *testing.T) {
	refused := errors.New("connection reset")
	for name, tt := range map[string]struct {
		broken listed
		want   string
	}{
		"an error": {listed{objects: map[string]int{"1": 5}, err: refused}, "dump broken: connection reset"},
		"a panic":  {listed{panics: true}, "dump broken: panic in backend: nil map"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, calls := withListed(t,
					map[string]listed{"broken": tt.broken, "fine": {objects: map[string]int{"1": 1}}}, nil)
				must2(s.Commit(t.Context(), kvscheduler.Txn{
					Source: "test",
					Set:    []kvscheduler.Object{intAt("broken/1", 1), intAt("fine/2", 2)},
				}))(t)
				*calls = nil
				reopened := false
				_, err := s.Resync(t.Context(), kvscheduler.ResyncOpt{
					Reopen: func() bool { reopened = true; return true },
				})
				if err == nil || err.Error() != tt.want || reopened {
					t.Errorf("resync: %v; lanes are reopened: %t", err, reopened)
				}
				if want := []string{"create 2 want=2 have=0 meta=0"}; !slices.Equal(*calls, want) {
					t.Errorf("the kind that was read is repaired, the other one is left: %q", *calls)
				}
			})
		})
	}
}

// A backend finds its own handle in each operation: that of the creation, until a dump finds another one.
func TestOperationsGetTheHandleOfTheObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, calls := withListed(t, map[string]listed{"x": {objects: map[string]int{"1": 3}}}, nil)
		for _, v := range []int{1, 2} {
			must2(s.Commit(t.Context(), kvscheduler.Txn{Source: "test", Set: []kvscheduler.Object{intAt("x/1", v)}}))(t)
		}
		must2(s.Resync(t.Context(), kvscheduler.ResyncOpt{}))(t)
		must2(s.Commit(t.Context(), kvscheduler.Txn{Source: "test", Replace: true}))(t)
		want := []string{
			"create 1 want=1 have=0 meta=0", "update 1 want=2 have=1 meta=41", "update 1 want=2 have=3 meta=103",
			"delete 1 want=0 have=2 meta=103",
		}
		if !slices.Equal(*calls, want) {
			t.Errorf("calls %q, want %q", *calls, want)
		}
	})
}
