package kvscheduler_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/kvscheduler/kvschedulertest"
)

// events returns the operations that reports caused, with their reasons.
func (w *world) events() (done []string) {
	for rec := range w.s.Log(0) {
		for _, o := range rec.Ops {
			if rec.Origin == "event" {
				done = append(done, o.Verb+" "+o.Ref+" "+o.Why)
			}
		}
	}
	return done
}

func TestAReportedDifferenceIsRepaired(t *testing.T) {
	for name, tt := range map[string]struct {
		tampered *thing
		report   kvscheduler.Object
		want     []string
	}{
		"another value":              {&thing{Version: 2, Secret: "s"}, put("a/1", thing{Version: 2}), []string{"update a/1 drift"}},
		"a deletion":                 {nil, del("a/1"), []string{"create a/1 drift"}},
		"the value without a secret": {&thing{Version: 1, Secret: "s"}, put("a/1", thing{Version: 1}), nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, kvschedulertest.New(), nil)
				defer w.end()
				want := thing{Version: 1, Secret: "s"}
				w.put(put("a/1", want))
				w.m.Tamper(key("a/1"), tt.tampered)
				w.s.Observe(tt.report)
				synctest.Wait()
				if got := w.events(); !slices.Equal(got, tt.want) {
					t.Errorf("operations %q, want %q", got, tt.want)
				}
				if got := w.m.Live()[key("a/1")]; got != want {
					t.Errorf("the machine has %+v", got)
				}
				w.noWrong()
			})
		})
	}
}

func TestAReportOfAForeignObjectDoesNotMakeItOurs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, kvschedulertest.New(), nil)
		defer w.end()
		w.m.Foreign(key("a/theirs"), thing{Version: 1})
		must2(w.resync(kvscheduler.ResyncOpt{}))(t)
		w.s.Observe(put("a/theirs", thing{Version: 2}))
		w.s.Observe(put("a/other", thing{Version: 3}))
		synctest.Wait()
		for _, object := range []string{"a/theirs", "a/other"} {
			if st, _ := w.s.View().Status(key(object)); st.Phase != kvscheduler.Observed {
				t.Errorf("%s is %s", object, st.Phase)
			}
		}
		if v, _ := kvscheduler.Applied(w.s.View(), w.kinds["a"], "theirs"); v.Version != 2 {
			t.Errorf("the view has %+v", v)
		}
		<-time.After(time.Hour)
		if calls := w.m.Calls(); len(calls) > 0 {
			t.Errorf("calls %v", calls)
		}
	})
}

func TestTheDelayOfAReportedRemovalStartsWithItsFirstReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, kvschedulertest.New(), nil)
		defer w.end()
		gone := kvscheduler.KindNamed[string]("seen").Del("x")
		w.s.Observe(seen("x", "1"))
		must(t, w.s.Wait(t.Context(), []ref{key("seen/x")}))
		began := time.Now()
		for range 4 {
			w.s.Observe(gone)
			<-time.After(300 * time.Millisecond)
		}
		must(t, w.s.Wait(t.Context(), []ref{key("seen/x")}, kvscheduler.Absent))
		if took := time.Since(began); took > 1200*time.Millisecond {
			t.Errorf("it is gone after %s, want one second after the first report", took)
		}
	})
}

func TestAnAtomicTransactionStartsNoCallAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for mode, want := range map[kvscheduler.Mode][]string{kvscheduler.Atomic: {"a create 1"}, kvscheduler.BestEffort: {"a create 1", "b create 1"}} {
			w := start(t, kvschedulertest.New(), nil)
			w.m.Fail(func(_ kvscheduler.Verb, r ref) kvschedulertest.Fault {
				if r == key("a/1") {
					return kvschedulertest.Refuse
				}
				return kvschedulertest.Fine
			})
			_, err := w.commit(mode, put("a/1", thing{}), put("b/1", thing{}))
			var calls []string
			for _, c := range w.m.Calls() {
				calls = append(calls, string(c.Kind)+" "+c.Verb.String()+" "+strings.Join(c.Names, " "))
			}
			if err == nil || !slices.Equal(calls, want) {
				t.Errorf("mode %d: calls %q, want %q (%v)", mode, calls, want, err)
			}
			w.end()
		}
	})
}
