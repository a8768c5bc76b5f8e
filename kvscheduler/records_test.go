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

func TestKeysBelongToTheirSource(t *testing.T) {
	w := start(t, kvschedulertest.New(), nil)
	defer w.end()
	ctx := context.Background()
	w.put(put("a/1", thing{}), put("c/1", thing{}))
	for name, tc := range map[string]kvscheduler.Txn{
		"another source sets":    {Source: "other", Set: []kvscheduler.Object{put("a/1", thing{})}},
		"another source deletes": {Source: "other", Set: []kvscheduler.Object{del("a/1")}},
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
	rec, err := w.s.Commit(ctx, kvscheduler.Txn{
		Source:  "test",
		Replace: true,
		Set:     []kvscheduler.Object{put("a/2", thing{})},
	})
	must(t, err)
	want := []string{"0 delete a/1", "0 delete c/1", "1 create a/2"}
	if got := ops(rec); !slices.Equal(got, want) {
		t.Errorf("replace: %q", got)
	}
	w.noWrong()
}

func TestSecretsAreRedactedInRecordsAndDifferences(t *testing.T) {
	const marker = "hunter2"
	w := start(t, kvschedulertest.New(), nil)
	defer w.end()
	w.m.Fail(faults(1, 50, kvschedulertest.Refuse, kvschedulertest.LoseCall))
	for i := range 10 {
		_, _ = w.commit(kvscheduler.Mode(i%2), put("a/1", thing{Version: i, Secret: marker}),
			put("b/1", thing{Type: i, Secret: marker, Needs: "a/1"}))
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
		unrecorded := make(map[uint64]bool)
		for i := range 30 {
			_, _ = w.s.Commit(t.Context(), kvscheduler.Txn{ // some operations fail, and are retried
				Source: "test",
				Event:  uint64(i) + 1,
				Set: []kvscheduler.Object{
					put("a/1", thing{Version: i}), put("b/1", thing{Needs: "a/1", Type: i / 3}),
				},
			})
			unrecorded[uint64(i)+1] = true
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
			if r.Event != 0 && !unrecorded[r.Event] {
				t.Errorf("event %d has two records", r.Event)
			}
			delete(unrecorded, r.Event)
		}
		if len(unrecorded) > 0 || uint64(len(hooked)) != seq || !slices.IsSorted(hooked) {
			t.Errorf("without a record: %v; %d hooked of %d", unrecorded, len(hooked), seq)
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
		"count": func(c *kvscheduler.Config) { c.Limit(kvscheduler.Limits{Records: 5}) },
		"bytes": func(c *kvscheduler.Config) { c.Limit(kvscheduler.Limits{LogBytes: 5000}) },
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

func TestAValueThatIsSetAgainIsTriedAgain(t *testing.T) {
	w := start(t, kvschedulertest.New(), func(c *kvscheduler.Config) { c.Limit(kvscheduler.Limits{RetryMin: 1 << 40}) })
	defer w.end()
	w.m.Fail(func(kvscheduler.Verb, ref) kvschedulertest.Fault { return kvschedulertest.Refuse })
	if _, err := w.commit(kvscheduler.BestEffort, put("a/1", thing{})); err == nil {
		t.Error("a refused create is no error")
	}
	w.m.Fail(nil)
	w.put(put("a/1", thing{}))
	if there, _ := w.m.Has(key("a/1")); !there {
		t.Error("the object waits for its retry")
	}
}
