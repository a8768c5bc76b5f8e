package kvscheduler_test

import (
	"encoding/json"
	"iter"
	"slices"
	"testing"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/kvscheduler/kvschedulertest"
)

// FuzzRestore restores any records of a state file. The log is in order, no number appears twice, and the numbers go on
// behind it.
func FuzzRestore(f *testing.F) {
	f.Add([]byte(
		`[{"seq":1,"origin":"txn","label":"add","ops":[{"ref":"a/1","verb":"create","new":{"x":[1]}}]},{"seq":2}]`))
	f.Add([]byte(`[{"seq":18446744073709551615},{"seq":7},{"seq":3},{"seq":7},{"seq":0}]`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var records []*kvscheduler.Record
		if json.Unmarshal(raw, &records) != nil || slices.Contains(records, nil) {
			return // the agent leaves entries out that are null
		}
		s := kvscheduler.New(kvscheduler.Limited(kvscheduler.Limits{Records: 4}))
		s.Restore(records)
		rec, err := s.Commit(running(t, s), kvscheduler.Txn{Source: "a", Label: "new"})
		if err != nil {
			t.Fatal(err)
		}
		last := uint64(0)
		for r := range s.Log(0) {
			if r.Seq <= last {
				t.Errorf("record %d follows record %d", r.Seq, last)
			}
			last = r.Seq
		}
		if last != rec.Seq {
			t.Errorf("the log ends with record %d, and the last one made is %d", last, rec.Seq)
		}
	})
}

// FuzzJournal loads any entry of the journal. An object of that name is created all the same, and nothing else is
// touched.
func FuzzJournal(f *testing.F) {
	f.Add("a/1", []byte(`{"Secret":"s","Needs":"b/1"}`))
	f.Add("a/1", []byte("null"))
	f.Add("nokind/1", []byte("{}"))
	f.Add("seen/1", []byte("7"))
	f.Fuzz(func(t *testing.T, ref string, value []byte) {
		m := kvschedulertest.New()
		w := start(t, m, func(c *kvscheduler.Config) { c.Journal = oneEntry{Ref: ref, V: value} })
		defer w.end()
		w.put(put("a/1", thing{Secret: "new"}), put("c/1", thing{Needs: "a/1"}))
		must2(w.resync(kvscheduler.ResyncOpt{}))(t)
		w.noWrong()
		if live := m.Live(); len(live) != 2 || live[key("a/1")].Secret != "new" {
			t.Errorf("the machine has %+v", live)
		}
	})
}

// oneEntry is a journal of one entry that keeps nothing.
type oneEntry kvscheduler.JournalEntry

func (oneEntry) Append([]kvscheduler.JournalEntry) error { return nil }

func (e oneEntry) Load() iter.Seq2[kvscheduler.JournalEntry, error] {
	return func(yield func(kvscheduler.JournalEntry, error) bool) { yield(kvscheduler.JournalEntry(e), nil) }
}
