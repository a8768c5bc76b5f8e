package kvscheduler_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/kvscheduler/kvschedulertest"
)

// journal keeps the last applied values in memory.
type journal struct {
	mu      sync.Mutex
	entries []kvscheduler.JournalEntry
}

func (j *journal) Append(e []kvscheduler.JournalEntry) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = append(j.entries, e...)
	return nil
}

func (j *journal) Load() iter.Seq2[kvscheduler.JournalEntry, error] {
	return func(yield func(kvscheduler.JournalEntry, error) bool) {
		for _, e := range j.entries {
			if !yield(e, nil) {
				return
			}
		}
	}
}

func (w *world) resync(o kvscheduler.ResyncOpt) (*kvscheduler.Record, error) {
	return w.s.Resync(context.Background(), o)
}

func TestForeignObjectsAreNeverTouched(t *testing.T) {
	w := start(t, kvschedulertest.New(), nil)
	defer w.end()
	w.m.Foreign(key("a/theirs"), thing{})
	w.m.Foreign(key("a/wanted"), thing{Version: 7})
	rec, err := w.resync(kvscheduler.ResyncOpt{Force: true})
	must(t, err)
	if len(rec.Ops) > 0 {
		t.Errorf("a resync does %q", ops(rec))
	}
	rec = w.put(put("a/wanted", thing{}), put("b/1", thing{Needs: "a/theirs"}))
	if got := ops(rec); !slices.Equal(got, []string{"1 create b/1"}) {
		t.Errorf("got %q", got)
	}
	st, _ := w.s.View().Status(key("a/wanted"))
	if st.Phase != kvscheduler.Pending || len(st.Missing) != 1 {
		t.Errorf("a desired object under a foreign one is %v, missing %q", st.Phase, st.Missing)
	}
	w.put(del("a/wanted"))
	if there, foreign := w.m.Has(key("a/wanted")); !there || !foreign {
		t.Error("the foreign object is gone")
	}
	w.noWrong()
}

func TestNothingIsPrunedBeforeAllSourcesAreReadyNorAboveTheGuard(t *testing.T) {
	m := kvschedulertest.New()
	old := start(t, m, nil)
	var set []kvscheduler.Object
	for i := range 40 {
		set = append(set, put(fmt.Sprintf("a/%d", i), thing{}))
	}
	old.put(set...)
	old.end()
	w := start(t, m, func(c *kvscheduler.Config) { c.Sources = []string{"test", "other"} })
	defer w.end()
	must2(w.resync(kvscheduler.ResyncOpt{}))(t)
	w.put(put("a/0", thing{}))
	steps := []struct {
		name  string
		ready string
		opt   kvscheduler.ResyncOpt
		err   error
		left  int
	}{
		{"no source is ready", "", kvscheduler.ResyncOpt{Force: true}, nil, 40},
		{"one is ready", "test", kvscheduler.ResyncOpt{Force: true}, nil, 40},
		{"more than half", "other", kvscheduler.ResyncOpt{}, kvscheduler.ErrPruneGuard, 40},
		{"more than allowed", "", kvscheduler.ResyncOpt{MaxPrune: 0.9}, kvscheduler.ErrPruneGuard, 40},
		{"a dry run", "", kvscheduler.ResyncOpt{Force: true, DryRun: true}, nil, 40},
		{"still guarded after the dry run", "", kvscheduler.ResyncOpt{}, kvscheduler.ErrPruneGuard, 40},
		{"by force", "", kvscheduler.ResyncOpt{Force: true}, nil, 1},
	}
	for _, s := range steps {
		if s.ready != "" {
			w.s.Ready(s.ready)
		}
		rec, err := w.resync(s.opt)
		if !errors.Is(err, s.err) || len(m.Live()) != s.left {
			t.Errorf("%s: %v, %d left, want %v, %d", s.name, err, len(m.Live()), s.err, s.left)
		}
		if s.err != nil && len(rec.Pending) != 39 {
			t.Errorf("%s: the record lists %d", s.name, len(rec.Pending))
		}
	}
	w.noWrong()
}

func TestARestartWithUnchangedDesireDoesNothing(t *testing.T) {
	for name, withJournal := range map[string]bool{"with a journal": true, "without a journal": false} {
		t.Run(name, func(t *testing.T) {
			m := kvschedulertest.New()
			j := &journal{}
			configure := func(c *kvscheduler.Config) {
				c.Sources = []string{"test"}
				if withJournal {
					c.Journal = j
				}
			}
			set := []kvscheduler.Object{
				put("a/1", thing{Secret: "s"}), put("c/1", thing{Needs: "a/1", Near: "a0"}),
				put("a/2", thing{Bucket: "a0"}),
			}
			old := start(t, m, configure)
			old.put(set...)
			old.end()
			m.Calls()
			w := start(t, m, configure)
			defer w.end()
			must2(w.resync(kvscheduler.ResyncOpt{}))(t)
			rec := w.put(set...)
			w.s.Ready("test")
			must2(w.resync(kvscheduler.ResyncOpt{}))(t)
			if calls := m.Calls(); len(calls) > 0 {
				t.Errorf("the restart made %v; %+v", calls, rec.Ops)
			}
			set[0] = put("a/1", thing{Secret: "another"})
			rec = w.put(set...)
			if got := ops(rec); len(got) != 1 || !strings.HasSuffix(got[0], "update a/1") {
				t.Errorf("a changed secret: %q", got)
			}
			w.noWrong()
		})
	}
}

func TestASecretThatChangedDuringARestartIsOneUpdate(t *testing.T) {
	for name, withJournal := range map[string]bool{"with a journal": true, "without a journal": false} {
		t.Run(name, func(t *testing.T) {
			m := kvschedulertest.New()
			j := &journal{}
			configure := func(c *kvscheduler.Config) {
				c.Sources = []string{"test"}
				if withJournal {
					c.Journal = j
				}
			}
			old := start(t, m, configure)
			old.put(put("a/1", thing{Secret: "old"}))
			old.end()
			m.Calls()
			w := start(t, m, configure)
			defer w.end()
			must2(w.resync(kvscheduler.ResyncOpt{}))(t)
			w.put(put("a/1", thing{Secret: "new"}))
			must2(w.resync(kvscheduler.ResyncOpt{}))(t)
			calls := m.Calls()
			if len(calls) != 1 || calls[0].Verb != kvscheduler.Update {
				t.Errorf("made %v", calls)
			}
		})
	}
}

func TestResyncRepairsForeignChanges(t *testing.T) {
	w := start(t, kvschedulertest.New(), nil)
	defer w.end()
	w.put(put("a/1", thing{}), put("b/1", thing{Needs: "a/1"}), put("c/1", thing{}))
	w.m.Tamper(key("a/1"), nil)
	w.m.Tamper(key("c/1"), &thing{Version: 9})
	diffs, err := w.s.Verify(context.Background())
	must(t, err)
	if len(diffs) != 2 || diffs[0].Reason != "missing" || diffs[1].Reason != "stored hash differs" {
		t.Errorf("verify: %+v", diffs)
	}
	rec, err := w.resync(kvscheduler.ResyncOpt{})
	must(t, err)
	want := []string{"0 delete b/1", "2 create a/1", "2 update c/1", "3 create b/1"}
	if got := ops(rec); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	diffs, err = w.s.Verify(context.Background(), key("a/1"), key("b/1"), key("c/1"))
	must(t, err)
	if len(diffs) > 0 {
		t.Errorf("verify after the repair: %+v", diffs)
	}
	w.noWrong()
}

// An object that the scheduler has never heard of has no entry, but may carry a hash.
func TestVerifyReportsAnUnknownObjectThatCarriesAHash(t *testing.T) {
	w := start(t, kvschedulertest.New(), nil)
	defer w.end()
	w.m.Tamper(key("a/stray"), &thing{Version: 1})
	diffs, err := w.s.Verify(context.Background())
	must(t, err)
	if len(diffs) != 1 || diffs[0].Ref.String() != "a/stray" || diffs[0].Reason != "there, but not desired" {
		t.Errorf("verify: %+v", diffs)
	}
}

func TestADryRunDoesNotEndARemovalThatIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, kvschedulertest.New(), nil)
		defer w.end()
		w.put(put("a/x", thing{}), put("b/on-x", thing{Needs: "a/x"}))
		refusals := 1
		w.m.Fail(func(verb kvscheduler.Verb, r ref) kvschedulertest.Fault {
			if verb == kvscheduler.Delete && r == key("b/on-x") && refusals > 0 {
				refusals--
				return kvschedulertest.Refuse
			}
			return kvschedulertest.Fine
		})
		_, err := w.commit(kvscheduler.BestEffort, del("a/x"), del("b/on-x"))
		if err == nil {
			t.Fatal("the removal was not refused")
		}
		_, err = w.resync(kvscheduler.ResyncOpt{DryRun: true})
		must(t, err)
		w.quiet()
		if live := w.m.Live(); len(live) > 0 {
			t.Errorf("left: %v", live)
		}
	})
}

func TestWhatADryRunFoundMissingIsMadeByTheNextResync(t *testing.T) {
	w := start(t, kvschedulertest.New(), nil)
	defer w.end()
	w.put(put("a/x", thing{}), put("b/on-x", thing{Needs: "a/x"}))
	w.m.Tamper(key("b/on-x"), nil)
	w.m.Tamper(key("a/x"), nil)
	for range 2 { // the second dry run must find it again
		rec, err := w.resync(kvscheduler.ResyncOpt{DryRun: true})
		must(t, err)
		if len(rec.Ops) != 2 {
			t.Errorf("a dry run plans %v", rec.Ops)
		}
	}
	_, err := w.resync(kvscheduler.ResyncOpt{})
	must(t, err)
	if live := w.m.Live(); len(live) != 2 {
		t.Errorf("there is only %v", live)
	}
}
