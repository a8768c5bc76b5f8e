package kvscheduler

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
)

// A call of the lane "if" hangs. Each commit of another lane tries what waits for it again.
func TestWhatWaitsForALaneIsBounded(t *testing.T) {
	x := newBench(t)
	const objects = 100
	x.st.lanes[""].hung.Store(true)
	for i := range 50 {
		_, err := x.st.commit(context.Background(), &request{
			txn:    Txn{Source: "bench", Set: x.pods(objects, 1500+i)},
			queued: x.st.now(),
		})
		if !errors.Is(err, ErrDown) {
			t.Fatalf("commit %d: %v", i, err)
		}
	}
	if n := len(x.st.lanes[""].idle); n != objects/4 {
		t.Errorf("%d objects wait for the lane, want the first of each chain: %d", n, objects/4)
	}
	for range 50 {
		x.st.lanes[""].audit = appendKind(x.st.lanes[""].audit, "if")
		x.st.losing = true
		x.st.resyncLost([]Kind{"if"})
	}
	if n := len(x.st.lanes[""].audit) + len(x.st.lost); n != 2 {
		t.Errorf("%d kinds are to be read, want each once", n)
	}
}

// The caller of a best-effort transaction gets the failures of its own objects and of what depends on them, not those
// that another transaction left behind.
func TestAnUnrelatedTransactionDoesNotReturnTheFailuresOfOthers(t *testing.T) {
	s := New(Config{})
	var kinds []named
	for _, name := range []string{"stuck", "fine"} {
		k, err := register(s, Descriptor[*iface, int]{
			Name: name, Lane: name, Equal: func(a, b *iface) bool { return *a == *b }, Backend: &still{},
			Deps: func(_ string, v *iface) []Dep {
				if v.Needs == "" {
					return nil
				}
				return []Dep{{On: Ref{Kind: "fine", Name: v.Needs}}}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, k)
	}
	st, err := s.prepare()
	if err != nil {
		t.Fatal(err)
	}
	st.lanes["stuck"].hung.Store(true)
	commit := func(set ...Object) error {
		_, err := st.commit(context.Background(), &request{txn: Txn{Source: "test", Set: set}, queued: st.now()})
		return err
	}
	for i := range 3 {
		if err := commit(kinds[0].Put(fmt.Sprint(i), &iface{})); !errors.Is(err, ErrDown) {
			t.Errorf("an object of the lane that hangs: %v", err)
		}
		if err := commit(kinds[1].Put(fmt.Sprint(i), &iface{})); err != nil {
			t.Errorf("an object of the other lane: %v", err)
		}
	}
	if err := commit(kinds[0].Put("waits", &iface{Needs: "later"})); err != nil {
		t.Errorf("an object that waits: %v", err)
	}
	if err := commit(kinds[1].Put("later", &iface{})); !errors.Is(err, ErrDown) {
		t.Errorf("what depends on an object of the transaction is its own failure, too: %v", err)
	}
}

func TestUndeliveredRecordsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var delivered []uint64
		l := &ring{maxRecords: 10, maxBytes: 1 << 20, onDone: func(r *Record) {
			<-release
			delivered = append(delivered, r.Seq)
		}}
		l.append(&Record{Seq: 1}, 1)
		synctest.Wait() // the hook has the first record
		for seq := uint64(2); seq <= 100; seq++ {
			l.append(&Record{Seq: seq}, 1)
		}
		if n := len(l.undelivered); n != 10 {
			t.Errorf("%d records wait for the hook, want 10", n)
		}
		close(release)
		l.delivered.Wait()
		if want := 11; len(delivered) != want || delivered[want-1] != 100 {
			t.Errorf("delivered are %v", delivered)
		}
	})
}

// A record that is larger than the log may be is the only one that says what happened.
func TestTheLastRecordIsKeptWhateverItsSize(t *testing.T) {
	l := &ring{maxRecords: 10, maxBytes: 1000}
	for seq, size := range []int{400, 400, 5000, 6000, 400} {
		l.append(&Record{Seq: uint64(seq + 1)}, size)
		records := l.since(0)
		if len(records) == 0 || records[len(records)-1].Seq != uint64(seq+1) {
			t.Errorf("after record %d the log has %d records", seq+1, len(records))
		}
	}
	if n := len(l.since(0)); n != 1 || l.bytes != 400 {
		t.Errorf("%d records of %d bytes, want the last one of 400", n, l.bytes)
	}
}

func TestWhatMayBePrunedWithoutAQuestion(t *testing.T) {
	for _, tt := range []struct {
		opt               ResyncOpt
		candidates, known int
		may               bool
	}{
		{ResyncOpt{}, defaultPrune, defaultPrune, true},
		{ResyncOpt{}, defaultPrune + 1, 2*defaultPrune + 1, false},
		{ResyncOpt{}, defaultPrune + 1, 2*defaultPrune + 2, true},
		{ResyncOpt{MaxPrune: 0.25}, 1, 4, true},
		{ResyncOpt{MaxPrune: 0.25}, 1, 3, false},
		{ResyncOpt{Force: true}, 100, 100, true},
	} {
		if why := guard(tt.opt, tt.candidates, tt.known); (why == "") != tt.may {
			t.Errorf("%+v: %d of %d: %q, may %t", tt.opt, tt.candidates, tt.known, why, tt.may)
		}
	}
}

// lastEntries is a journal with the last entry of each object.
type lastEntries map[string][]byte

func (j lastEntries) Append(entries []JournalEntry) error {
	for _, e := range entries {
		j[e.Ref] = e.V
	}
	return nil
}

func (j lastEntries) Load() iter.Seq2[JournalEntry, error] {
	return func(func(JournalEntry, error) bool) {}
}

func TestAValueThatCannotBeEncodedDoesNotKeepOthersOutOfTheJournal(t *testing.T) {
	j := lastEntries{}
	s := New(Config{Journal: j})
	k, err := register(s, Descriptor[int, int]{
		Name: "number", Equal: func(a, b int) bool { return a == b },
		Encode: func(v int) ([]byte, error) {
			if v < 0 {
				return nil, errors.New("negative")
			}
			return []byte("1"), nil
		},
		Backend: nothing{},
	})
	if err != nil {
		t.Fatal(err)
	}
	st, err := s.prepare()
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		set := []Object{k.Put("a", -1-i), k.Put("b", 1+i)}
		_, err := st.commit(context.Background(), &request{txn: Txn{Source: "test", Set: set}, queued: st.now()})
		if err == nil || !strings.Contains(err.Error(), "number/a") {
			t.Errorf("the error %v does not name the object", err)
		}
	}
	if len(st.journal.noted) != 0 || j["number/b"] == nil {
		t.Errorf("%d values are still to be written; written are %v", len(st.journal.noted), j)
	}
}

// nothing is a backend that does nothing.
type nothing struct{}

func (nothing) Create(context.Context, []Item[int, int]) {}
func (nothing) Update(context.Context, []Item[int, int]) {}
func (nothing) Delete(context.Context, []Item[int, int]) {}

func (nothing) Dump(context.Context, View) iter.Seq2[Actual[int, int], error] {
	return func(func(Actual[int, int], error) bool) {}
}
