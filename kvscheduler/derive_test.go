package kvscheduler_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/kvscheduler/kvschedulertest"
)

func TestDerivedObjectsLiveAndDieWithTheirParent(t *testing.T) {
	w := start(t, kvschedulertest.New(), nil)
	defer w.end()
	for _, step := range []struct {
		name string
		set  kvscheduler.Object
		want []string
	}{
		{"born with it", put("a/1", thing{Kids: "b/1 b/2"}), []string{"1 create a/1", "2 create b/1", "2 create b/2"}},
		{"one taken out", put("a/1", thing{Kids: "b/1"}), []string{"0 delete b/2", "2 update a/1"}},
		{"one comes", put("a/1", thing{Kids: "b/1 c/3"}), []string{"2 update a/1", "3 create c/3"}},
		{"recreated with it", put("a/1", thing{Type: 1, Kids: "b/1 c/3"}), []string{"0 delete b/1", "0 delete c/3", "1 delete a/1", "2 create a/1", "3 create b/1", "3 create c/3"}},
		{"invalid parent", put("a/1", thing{Bad: true, Kids: "b/1"}), []string{"0 delete b/1", "0 delete c/3", "1 delete a/1"}},
		{"back", put("a/1", thing{Kids: "b/1"}), []string{"1 create a/1", "2 create b/1"}},
		{"gone with it", del("a/1"), []string{"0 delete b/1", "1 delete a/1"}},
	} {
		rec, _ := w.commit(kvscheduler.BestEffort, step.set)
		if got := ops(rec); !slices.Equal(got, step.want) {
			t.Errorf("%s: got %q, want %q", step.name, got, step.want)
		}
	}
	w.noWrong()
}

func TestKeysBelongToTheirSource(t *testing.T) {
	w := start(t, kvschedulertest.New(), nil)
	defer w.end()
	ctx := context.Background()
	w.put(put("a/1", thing{Kids: "b/1"}), put("c/1", thing{}))
	for name, tc := range map[string]kvscheduler.Txn{
		"another source sets":       {Source: "other", Set: []kvscheduler.Object{put("a/1", thing{})}},
		"another source deletes":    {Source: "other", Set: []kvscheduler.Object{del("a/1")}},
		"a derived key is set":      {Source: "test", Set: []kvscheduler.Object{put("b/1", thing{})}},
		"a set key is derived":      {Source: "test", Set: []kvscheduler.Object{put("a/2", thing{Kids: "c/1"})}},
		"two parents for one key":   {Source: "test", Set: []kvscheduler.Object{put("a/2", thing{Kids: "b/2"}), put("a/3", thing{Kids: "b/2"})}},
		"a key derived from itself": {Source: "test", Set: []kvscheduler.Object{put("a/2", thing{Kids: "a/2"})}},
	} {
		before := w.m.Live()
		_, err := w.s.Commit(ctx, tc)
		if !errors.Is(err, kvscheduler.ErrConflict) {
			t.Errorf("%s: %v", name, err)
		}
		if d := diff(w.m.Live(), before); d != "" {
			t.Errorf("%s changed: %s", name, d)
		}
	}
	rec, err := w.s.Commit(ctx, kvscheduler.Txn{Source: "test", Replace: true, Set: []kvscheduler.Object{put("a/2", thing{Kids: "b/1"})}})
	must(t, err)
	want := []string{"0 delete b/1", "1 delete a/1", "1 delete c/1", "2 create a/2", "3 create b/1"}
	if got := ops(rec); !slices.Equal(got, want) {
		t.Errorf("replace with a child that moved: %q", got)
	}
	w.noWrong()
}

func TestSecretsAreRedactedInRecordsAndDifferences(t *testing.T) {
	const marker = "hunter2"
	w := start(t, kvschedulertest.New(), nil)
	defer w.end()
	w.m.Fail(faults(1, 50, kvschedulertest.Refuse, kvschedulertest.LoseCall))
	for i := range 10 {
		_, _ = w.commit(kvscheduler.Mode(i%2), put("a/1", thing{Version: i, Secret: marker}), put("b/1", thing{Type: i, Secret: marker, Needs: "a/1"}))
	}
	w.m.Fail(nil)
	w.m.Tamper(key("a/1"), &thing{Secret: marker + "x"})
	var out bytes.Buffer
	diffs, err := w.s.Verify(context.Background())
	must(t, err)
	must(t, json.NewEncoder(&out).Encode(diffs))
	for r := range w.s.Log(0) {
		must(t, json.NewEncoder(&out).Encode(r))
	}
	fmt.Fprintf(&out, "%+v\n", w.s.Why(key("a/1")))
	if !strings.Contains(out.String(), "(secret)") {
		t.Error("no redacted value was written: the test sees nothing")
	}
	if strings.Contains(out.String(), marker) {
		t.Error("a secret got out")
	}
}

func TestEveryTransactionHasOneRecordAndWatchEndsAtTheFinalStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var hooked []uint64
		w := start(t, kvschedulertest.New(), func(c *kvscheduler.Config) {
			c.OnDone = func(r *kvscheduler.Record) {
				mu.Lock()
				defer mu.Unlock()
				hooked = append(hooked, r.Seq)
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		last := make(map[ref]kvscheduler.Status)
		var watch sync.WaitGroup
		watch.Go(func() {
			for r, st := range w.s.Watch(ctx) {
				last[r] = st
			}
		})
		w.m.Fail(faults(3, 30, kvschedulertest.Refuse, kvschedulertest.LoseReply))
		tickets := make(map[uint64]int)
		for i := range 30 {
			ticket, err := w.s.Submit(kvscheduler.Txn{Source: "test", Event: uint64(i), Set: []kvscheduler.Object{put("a/1", thing{Version: i}), put("b/1", thing{Needs: "a/1", Type: i / 3})}})
			must(t, err)
			tickets[ticket] = i
		}
		synctest.Wait()
		w.m.Fail(nil)
		w.quiet()
		synctest.Wait()
		cancel()
		watch.Wait()
		w.end()
		var seq uint64
		for r := range w.s.Log(0) {
			if seq++; r.Seq != seq {
				t.Fatalf("record %d follows %d", r.Seq, seq-1)
			}
			if i, ok := tickets[r.Ticket]; ok && uint64(i) == r.Event {
				delete(tickets, r.Ticket)
			}
		}
		if len(tickets) > 0 || uint64(len(hooked)) != seq || !slices.IsSorted(hooked) {
			t.Errorf("without a record: %v; %d hooked of %d", tickets, len(hooked), seq)
		}
		for _, r := range []ref{key("a/1"), key("b/1")} {
			if st, _ := w.s.View().Status(r); st.Phase != last[r].Phase || st.Have != last[r].Have {
				t.Errorf("%s is %+v, the watcher saw %+v", r, st, last[r])
			}
		}
	})
}

func TestTheLogIsBoundedByCountAndBytes(t *testing.T) {
	for name, limit := range map[string]func(*kvscheduler.Config){
		"count": func(c *kvscheduler.Config) { c.LogRecords = 5 },
		"bytes": func(c *kvscheduler.Config) { c.LogBytes = 5000 },
	} {
		t.Run(name, func(t *testing.T) {
			w := start(t, kvschedulertest.New(), limit)
			defer w.end()
			for i := range 50 {
				w.put(put("a/1", thing{Version: i}))
			}
			recs := slices.Collect(w.s.Log(0))
			if len(recs) < 3 || len(recs) > 12 || recs[len(recs)-1].Seq != 50 {
				t.Errorf("%d records kept", len(recs))
			}
			if got := len(slices.Collect(w.s.Log(49))); got != 1 {
				t.Errorf("%d records after 49", got)
			}
		})
	}
}

func TestAValueThatIsSetAgainTriesItsChildrenAgain(t *testing.T) {
	w := start(t, kvschedulertest.New(), func(c *kvscheduler.Config) { c.Retry.Min = 1 << 40 })
	defer w.end()
	w.m.Fail(func(_ kvscheduler.Verb, r ref) kvschedulertest.Fault {
		if r == key("b/1") {
			return kvschedulertest.Refuse
		}
		return kvschedulertest.Fine
	})
	if _, err := w.commit(kvscheduler.BestEffort, put("a/1", thing{Kids: "b/1"})); err == nil {
		t.Error("a child that is refused is no error")
	}
	w.m.Fail(nil)
	w.put(put("a/1", thing{Kids: "b/1"}))
	if there, _ := w.m.Has(key("b/1")); !there {
		t.Error("the child waits for its retry")
	}
}
