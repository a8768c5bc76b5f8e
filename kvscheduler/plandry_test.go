package kvscheduler_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/kvscheduler/kvschedulertest"
)

// For each mode, and with failed and skipped operations of an earlier transaction: the planned operations, and the
// refusal, are those of the commit; and a plan leaves records, revision, statuses and machine as they were.
func TestAPlanLeavesNoTraceAndIsWhatEachModeCommits(t *testing.T) {
	check(t, func(rt *rapid.T) {
		w := start(rt, kvschedulertest.New(), func(c *kvscheduler.Config) {
			c.Limit(kvscheduler.Limits{RetryMin: time.Hour})
			c.Limit(kvscheduler.Limits{RetryMax: time.Hour})
		})
		defer w.end()
		first, second := twoSteps(rt, w)
		if rapid.Bool().Draw(rt, "the first fails") {
			w.m.Fail(faults(rapid.Uint64().Draw(rt, "seed"), 30, kvschedulertest.Refuse))
		}
		_, _ = w.commit(kvscheduler.BestEffort, first...)
		w.m.Fail(nil)
		w.m.Calls()
		txn := kvscheduler.Txn{
			Source: rapid.SampledFrom([]string{"test", "other"}).Draw(rt, "source"), Set: second,
			Mode: rapid.SampledFrom([]kvscheduler.Mode{kvscheduler.BestEffort, kvscheduler.Atomic}).Draw(rt,
				"mode"),
			NoPending: rapid.Bool().Draw(rt, "no pending"),
		}
		before := w.trace()
		var dry *kvscheduler.Record
		var refusal error
		for range 2 { // a plan does not affect the next one either
			dry, refusal = w.s.Plan(context.Background(), txn)
		}
		if calls, after := w.m.Calls(), w.trace(); len(calls) > 0 || !slices.Equal(after, before) {
			rt.Fatalf("a plan made %v; before\n%q\nafter\n%q", calls, before, after)
		}
		rec, err := w.s.Commit(context.Background(), txn)
		if textOf(refusal) != textOf(err) {
			rt.Fatalf("planned error %v, error %v", refusal, err)
		}
		if rec == nil || txn.Mode == kvscheduler.Atomic && err != nil {
			return
		}
		if !slices.Equal(ops(dry), ops(rec)) {
			rt.Fatalf("planned %q\ndone %q", ops(dry), ops(rec))
		}
	})
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// trace lists what a plan could leave: records, and the status of each object.
func (w *world) trace() (lines []string) {
	for rec := range w.s.Log(0) {
		lines = append(lines, rec.Origin)
	}
	for k := range w.kinds {
		for name, st := range w.s.View().All(kvscheduler.Kind(k)) {
			v, _ := w.s.View().Desired(ref{Kind: kvscheduler.Kind(k), Name: name})
			lines = append(lines,
				k+"/"+name+" "+st.Phase.String()+" "+textOf(st.Err)+" "+st.RetryAt.String()+" "+fmt.Sprint(v))
		}
	}
	slices.Sort(lines)
	return lines
}
