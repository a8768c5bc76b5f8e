package kvscheduler_test

import (
	"context"
	"testing"

	"pgregory.net/rapid"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/kvscheduler/kvschedulertest"
)

// check runs a property in a bubble, so that retries take no time.
func check(t *testing.T, property func(rt *rapid.T)) {
	t.Helper()
	rapid.Check(t, func(rt *rapid.T) { rapid.SyncTest(rt, property) })
}

// Invariants 1, 2 and 3 are checked by the machine at every operation, 4 and 5 at the end of each round.
func testConverge(t *testing.T, percent uint64, buckets bool, kinds ...kvschedulertest.Fault) {
	check(t, func(rt *rapid.T) {
		w := start(rt, kvschedulertest.New(), nil)
		defer w.end()
		w.unread = true
		order := firstOrder()
		for range rapid.IntRange(1, 6).Draw(rt, "rounds") {
			w.m.Fail(faults(rapid.Uint64().Draw(rt, "seed"), percent, kinds...))
			for range rapid.IntRange(1, 2).Draw(rt, "txns") {
				set, after := w.change(rt, order)
				if buckets {
					withBuckets(rt, set, after, w.unread)
				}
				w.desired = after
				_, _ = w.commit(kvscheduler.BestEffort, set...)
			}
			w.m.Fail(nil)
			w.converged()
		}
	})
}

func (w *world) converged() {
	w.t.Helper()
	w.quiet()
	w.noWrong()
	if d := diff(w.m.Live(), expected(w.desired)); d != "" {
		w.history()
		w.t.Fatalf("did not converge:\n%s", d)
	}
	w.m.Calls()
	rec, err := w.s.Resync(context.Background(), kvscheduler.ResyncOpt{})
	must(w.t, err)
	if len(rec.Ops) != 0 || len(w.m.Calls()) != 0 {
		w.t.Fatalf("not a fixpoint: a resync does %q, because %+v", ops(rec), rec.Ops)
	}
}

func TestTheMachineConvergesInOrderDespiteRefusals(t *testing.T) {
	testConverge(t, 30, false, kvschedulertest.Refuse)
}

func TestTheMachineConvergesInOrderDespiteLostReplies(t *testing.T) {
	testConverge(t, 30, false, kvschedulertest.LoseReply)
}

func TestTheMachineConvergesInOrderDespiteLostCalls(t *testing.T) {
	testConverge(t, 30, false, kvschedulertest.LoseCall)
}

func TestTheMachineConvergesInOrderDespiteAllFaults(t *testing.T) {
	testConverge(t, 40, false, kvschedulertest.Refuse, kvschedulertest.LoseReply, kvschedulertest.LoseCall)
}

func TestTheMachineConvergesInOrderWithBuckets(t *testing.T) {
	testConverge(t, 30, true, kvschedulertest.Refuse, kvschedulertest.LoseReply, kvschedulertest.LoseCall)
}
