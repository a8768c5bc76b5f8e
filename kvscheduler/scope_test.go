package kvscheduler_test

import (
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/kvscheduler/kvschedulertest"
)

func TestADryRunFindsADifferenceAndTheNextResyncRepairsIt(t *testing.T) {
	w := start(t, kvschedulertest.New(), nil)
	defer w.end()
	w.put(put("a/x", thing{Version: 1}), put("a/y", thing{}))
	w.m.Tamper(key("a/x"), &thing{Version: 2})
	for range 2 {
		rec, err := w.resync(kvscheduler.ResyncOpt{DryRun: true})
		must(t, err)
		if got := ops(rec); len(got) != 1 || rec.Ops[0].Why != "drift" {
			t.Errorf("a dry run plans %v", rec.Ops)
		}
	}
	w.m.Tamper(key("a/y"), nil)
	must2(w.resync(kvscheduler.ResyncOpt{DryRun: true}))(t)
	if st, _ := w.s.View().Status(key("a/y")); st.Phase != kvscheduler.Drifted {
		t.Errorf("a missing object is %v, want Drifted", st.Phase)
	}
	if st, _ := w.s.View().Status(key("a/x")); st.Phase != kvscheduler.Drifted {
		t.Errorf("the object is %v, want Drifted", st.Phase)
	}
	must2(w.resync(kvscheduler.ResyncOpt{}))(t)
	if got := w.m.Live()[key("a/x")]; got.Version != 1 {
		t.Errorf("the machine has version %d, want 1", got.Version)
	}
	w.noWrong()
}

// Kind b has no Reader, so that all of it is read; of a and c only what is named or depends on it.
func TestAResyncOfRefsRepairsThemWithTheirDependentsInOneRecordAndNothingElse(t *testing.T) {
	w := start(t, kvschedulertest.New(), nil)
	defer w.end()
	set := []kvscheduler.Object{
		put("a/base", thing{}), put("a/x", thing{Needs: "a/base"}), put("c/on-x", thing{Needs: "a/x"}),
		put("a/last", thing{Needs: "c/on-x"}),
		put("a/other", thing{}), put("c/on-other", thing{Needs: "a/other"}),
	}
	w.put(set...)
	for _, o := range set {
		w.m.Tamper(o.Ref, nil)
	}
	rec, err := w.resync(kvscheduler.ResyncOpt{Refs: []kvscheduler.Ref{key("a/x")}, Label: "drift"})
	must(t, err)
	live := slices.Sorted(maps.Keys(names(w.m.Live())))
	if want := []string{"a/base", "a/last", "a/x", "c/on-x"}; !slices.Equal(live, want) {
		t.Errorf("there are %q, want %q", live, want)
	}
	if len(rec.Ops) != 4 || rec.Label != "drift" {
		t.Errorf("the record has the label %q and the operations %q", rec.Label, ops(rec))
	}
	must2(w.resync(kvscheduler.ResyncOpt{}))(t)
	if live := w.m.Live(); len(live) != len(set) {
		t.Errorf("after a whole resync there are %v", live)
	}
	w.noWrong()
}

func TestAResyncOfRefsPrunesAnObjectThatIsNotDesired(t *testing.T) {
	w := start(t, kvschedulertest.New(), nil)
	defer w.end()
	w.m.Tamper(key("a/left"), &thing{})
	rec, err := w.resync(kvscheduler.ResyncOpt{DryRun: true, Kinds: []kvscheduler.Kind{"a"}})
	must(t, err)
	if got := ops(rec); len(got) != 1 {
		t.Fatalf("the dry run plans %q", got)
	}
	must2(w.resync(kvscheduler.ResyncOpt{Refs: []kvscheduler.Ref{key("a/left")}}))(t)
	if live := w.m.Live(); len(live) > 0 {
		t.Errorf("left: %v", live)
	}
}

func TestAMissingPartHasItsMakerRecreated(t *testing.T) {
	w := start(t, kvschedulertest.New(), nil)
	defer w.end()
	w.put(put("a/tap", thing{}), put("c/end", thing{PartOf: "a/tap"}), put("c/address", thing{Needs: "c/end"}))
	w.m.Tamper(key("c/end"), nil)
	rec, err := w.resync(kvscheduler.ResyncOpt{Refs: []kvscheduler.Ref{key("c/end")}})
	must(t, err)
	want := []string{"delete c/address", "delete a/tap", "create a/tap", "create c/end", "create c/address"}
	var got []string
	for _, op := range rec.Ops {
		got = append(got, op.Verb+" "+op.Ref)
	}
	if !slices.Equal(got, want) {
		t.Errorf("done: %q, want %q", got, want)
	}
	w.m.Tamper(key("c/address"), nil)
	rec, err = w.resync(kvscheduler.ResyncOpt{})
	if must(t, err); len(rec.Ops) != 1 {
		t.Errorf("a missing object that is no part has %q done", ops(rec))
	}
	w.noWrong()
}

func TestADryRunForAnEventIsLoggedIfItFoundSomething(t *testing.T) {
	w := start(t, kvschedulertest.New(), nil)
	defer w.end()
	w.put(put("a/x", thing{}))
	must2(w.resync(kvscheduler.ResyncOpt{DryRun: true, Event: 1, Label: "nothing"}))(t)
	w.m.Tamper(key("a/x"), nil)
	must2(w.resync(kvscheduler.ResyncOpt{DryRun: true, Label: "no event"}))(t)
	must2(w.resync(kvscheduler.ResyncOpt{DryRun: true, Event: 2, Label: "found"}))(t)
	var labels []string
	for r := range w.s.Log(0) {
		if r.Origin == "report" {
			labels = append(labels, r.Label)
		}
	}
	if !slices.Equal(labels, []string{"found"}) {
		t.Errorf("logged %q", labels)
	}
}

func names(live map[kvscheduler.Ref]thing) map[string]bool {
	all := make(map[string]bool)
	for r := range live {
		all[r.String()] = true
	}
	return all
}

// The dry run ends while the dumps of the resync run: what the resync knows of the object is older.
func TestWhatADryRunFindsDuringAResyncIsRepairedByTheResync(t *testing.T) {
	for name, tampered := range map[string]*thing{"missing": nil, "different": {Version: 2}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, kvschedulertest.New(), nil)
				defer w.end()
				w.put(put("a/x", thing{Version: 1}))
				w.m.Tamper(key("a/x"), tampered)
				release := w.m.Hold("c")
				defer release()
				var repaired sync.WaitGroup
				repaired.Go(func() { must2(w.resync(kvscheduler.ResyncOpt{}))(t) })
				synctest.Wait()
				must2(w.resync(kvscheduler.ResyncOpt{Kinds: []kvscheduler.Kind{"a"}, DryRun: true}))(t)
				release()
				repaired.Wait()
				if got := w.m.Live()[key("a/x")]; got.Version != 1 {
					t.Errorf("the machine has version %d, want 1", got.Version)
				}
				w.noWrong()
			})
		})
	}
}
