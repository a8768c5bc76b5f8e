package kvscheduler_test

import (
	"context"
	"testing"

	"pgregory.net/rapid"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/kvscheduler/kvschedulertest"
)

// A crash of the agent: its state is lost in the middle of faults, the machine's is not. A crash of the machine: the
// other way round. Either way, what comes next converges, and not a single rule is broken on the way.
func TestTheMachineConvergesInOrderDespiteCrashes(t *testing.T) {
	check(t, func(rt *rapid.T) {
		m := kvschedulertest.New()
		j := &journal{}
		configure := func(c *kvscheduler.Config) {
			c.Limit(kvscheduler.Limits{NoJitter: true})
			c.Sources = []string{"test"}
			if rapid.Bool().Draw(rt, "journal") {
				c.Journal = j
			}
		}
		w := start(rt, m, configure)
		order := firstOrder()
		defer func() { w.end() }()
		for range rapid.IntRange(1, 4).Draw(rt, "rounds") {
			w.unread = true
			set, after := w.change(rt, order)
			withBuckets(rt, set, after, w.unread)
			m.Fail(faults(rapid.Uint64().Draw(rt, "seed"), 30, kvschedulertest.Refuse, kvschedulertest.LoseReply,
				kvschedulertest.LoseCall))
			_, _ = w.commit(kvscheduler.Mode(rapid.IntRange(0, 1).Draw(rt, "mode")), set...)
			m.Fail(nil)
			if rapid.Bool().Draw(rt, "machine") {
				m.Forget()
			} else {
				w.end()
				m.Restarted()
				w = start(rt, m, configure)
			}
			w.desired = after
			w.recover(after)
			w.converged()
		}
	})
}

// recover recovers like a restarted agent: resync, stage the desired values, mark sources ready, resync again.
func (w *world) recover(desired map[ref]thing) {
	w.t.Helper()
	must2(w.resync(kvscheduler.ResyncOpt{}))(w.t)
	var set []kvscheduler.Object
	for r, v := range desired {
		set = append(set, kvschedulertest.KindOf[thing](r.Kind).Put(r.Name, v))
	}
	_, _ = w.s.Commit(context.Background(), kvscheduler.Txn{Source: "test", Replace: true, Set: set})
	w.s.Ready("test")
	must2(w.resync(kvscheduler.ResyncOpt{Force: true}))(w.t)
}

func TestAStagedStartMakesOnlyWhatIsMissing(t *testing.T) {
	m := kvschedulertest.New()
	old := start(t, m, nil)
	old.put(put("a/1", thing{Secret: "s"}), put("b/1", thing{Needs: "a/1"}))
	old.end()
	m.Calls()
	w := start(t, m, nil)
	defer w.end()
	must(t, w.s.Stage(context.Background(), kvscheduler.Txn{Source: "test", Replace: true,
		Set: []kvscheduler.Object{
			put("a/1", thing{Secret: "s"}), put("b/1", thing{Needs: "a/1"}), put("c/1", thing{Needs: "b/1"}),
		}}))
	if calls := m.Calls(); len(calls) > 0 {
		t.Errorf("staging made %v", calls)
	}
	rec, err := w.resync(kvscheduler.ResyncOpt{})
	must(t, err)
	if len(rec.Ops) != 1 || rec.Ops[0].Ref != "c/1" || rec.Ops[0].Verb != "create" {
		t.Errorf("the resync did %q", ops(rec))
	}
	w.noWrong()
}
