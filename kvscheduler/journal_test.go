package kvscheduler_test

import (
	"encoding/json"
	"errors"
	"iter"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/kvscheduler/kvschedulertest"
)

// last returns the last entry of each object, and forgets the entries.
func (j *journal) last() map[string]kvscheduler.JournalEntry {
	j.mu.Lock()
	defer j.mu.Unlock()
	last := make(map[string]kvscheduler.JournalEntry)
	for _, e := range j.entries {
		last[e.Ref] = e
	}
	j.entries = nil
	return last
}

func TestTheJournalHasTheAppliedValuesOfObjectsWithABackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := kvschedulertest.New()
		j := &journal{}
		w := start(t, m, func(c *kvscheduler.Config) { c.Journal = j })
		defer w.end()
		w.put(put("a/1", thing{Version: 1, Secret: "s"}), put("a/waits", thing{Needs: "c/none"}),
			kvschedulertest.KindOf[string]("seen").Put("x", "1"))
		got := j.last()
		if len(got) != 1 || got["a/1"].Hash == 0 {
			t.Fatalf("entries %+v", got)
		}
		var v thing
		must(t, json.Unmarshal(got["a/1"].V, &v))
		if want := (thing{Version: 1, Secret: "s"}); v != want {
			t.Errorf("the value is %+v", v)
		}
		w.put(put("a/1", thing{Version: 1, Secret: "t"}))
		if next := j.last(); next["a/1"].Hash == got["a/1"].Hash {
			t.Error("the hash does not cover the secret")
		}
		w.put(del("a/1"))
		if e, has := j.last()["a/1"]; !has || e.V != nil {
			t.Errorf("the entry of a deleted object is %+v, %t", e, has)
		}
	})
}

func TestForeignObjectsAreNotInTheJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := kvschedulertest.New()
		j := &journal{}
		w := start(t, m, func(c *kvscheduler.Config) { c.Journal = j })
		defer w.end()
		m.Foreign(key("a/theirs"), thing{Version: 3})
		must2(w.resync(kvscheduler.ResyncOpt{}))(t)
		if got := j.last(); len(got) > 0 {
			t.Errorf("entries %+v", got)
		}
	})
}

// failingJournal cannot be written, or not be read.
type failingJournal struct{ appending, loading error }

func (j failingJournal) Append([]kvscheduler.JournalEntry) error { return j.appending }
func (j failingJournal) Load() iter.Seq2[kvscheduler.JournalEntry, error] {
	return func(yield func(kvscheduler.JournalEntry, error) bool) {
		if j.loading != nil {
			yield(kvscheduler.JournalEntry{}, j.loading)
		}
	}
}

func TestACommitReportsAJournalThatCannotBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := errors.New("no space left on device")
		w := start(t, kvschedulertest.New(), func(c *kvscheduler.Config) {
			c.Journal = failingJournal{appending: full}
		})
		defer w.end()
		rec, err := w.commit(kvscheduler.BestEffort, put("a/1", thing{}))
		if !errors.Is(err, full) || !strings.Contains(rec.Err, "journal: no space left") {
			t.Errorf("error %v, record %q", err, rec.Err)
		}
	})
}

func TestRunFailsIfTheJournalCannotBeRead(t *testing.T) {
	corrupt := errors.New("checksum")
	s := kvscheduler.New(kvscheduler.Config{Journal: failingJournal{loading: corrupt}})
	if err := s.Run(t.Context()); !errors.Is(err, corrupt) {
		t.Errorf("run: %v", err)
	}
}

// A secret cannot be dumped: after a restart the journal proves that the machine has the desired one.
func TestTheLastEntryOfAnObjectCounts(t *testing.T) {
	encoded := func(v thing) []byte {
		b, err := json.Marshal(v)
		must(t, err)
		return b
	}
	for name, tt := range map[string]struct {
		entries []kvscheduler.JournalEntry
		applied string // the secret of the object that is known after a resync
		warns   int
	}{
		"its value": {
			[]kvscheduler.JournalEntry{
				{Ref: "a/1", V: encoded(thing{Secret: "old"})}, {Ref: "a/1", V: encoded(thing{Secret: "s"})},
			},
			"s", 0,
		},
		"a deletion, then it": {
			[]kvscheduler.JournalEntry{{Ref: "a/1"}, {Ref: "a/1", V: encoded(thing{Secret: "s"})}}, "s", 0,
		},
		"it, then a deletion": {
			[]kvscheduler.JournalEntry{{Ref: "a/1", V: encoded(thing{Secret: "s"})}, {Ref: "a/1"}}, "", 0,
		},
		"a value that is damaged": {[]kvscheduler.JournalEntry{{Ref: "a/1", V: []byte("{")}}, "", 1},
		"an unknown kind": {
			[]kvscheduler.JournalEntry{
				{Ref: "z/1", V: encoded(thing{})}, {Ref: "no key"}, {Ref: "a/1", V: encoded(thing{Secret: "s"})},
			},
			"s", 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := kvschedulertest.New()
				before := start(t, m, nil)
				before.put(put("a/1", thing{Secret: "s"}))
				before.end()
				var log strings.Builder
				w := start(t, m, func(c *kvscheduler.Config) {
					c.Sources = []string{"never ready"} // nothing is pruned
					c.Journal = &journal{entries: tt.entries}
					c.Logger = slog.New(slog.NewTextHandler(&log, nil))
				})
				defer w.end()
				must2(w.resync(kvscheduler.ResyncOpt{}))(t)
				if v, _ := applied(w.s.View(), "a/1"); v.Secret != tt.applied {
					t.Errorf("the secret is %q, want %q", v.Secret, tt.applied)
				}
				if n := strings.Count(log.String(), "level=WARN"); n != tt.warns {
					t.Errorf("%d warnings, want %d: %s", n, tt.warns, log.String())
				}
			})
		})
	}
}
