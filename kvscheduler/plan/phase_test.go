package plan_test

import (
	"errors"
	"testing"

	"github.com/weftnet/weft/kvscheduler/plan"
)

func TestThePhaseFollowsFromTheDesiredValueAndTheMachine(t *testing.T) {
	failed := plan.Failure{Err: errors.New("refused")}
	// The phases of an object that nothing desires, that is desired, whose operation failed, and with an invalid value.
	for state, want := range map[string][4]plan.Phase{
		"absent":                      {plan.Absent, plan.Waiting, plan.Failed, plan.Refused},
		"applied":                     {plan.Removing, plan.InSync, plan.Failed, plan.Removing},
		"applied and to be recreated": {plan.Removing, plan.Drifted, plan.Failed, plan.Removing},
		"applied and orphaned":        {plan.Orphaned, plan.Drifted, plan.Failed, plan.Removing},
		"unproven":                    {plan.Removing, plan.Drifted, plan.Failed, plan.Removing},
		"foreign":                     {plan.Foreign, plan.Blocked, plan.Blocked, plan.Refused},
		"doubtful, it was absent":     {plan.Removing, plan.Waiting, plan.Failed, plan.Removing},
		"doubtful, it was applied":    {plan.Removing, plan.Drifted, plan.Failed, plan.Removing},
	} {
		t.Run(state, func(t *testing.T) {
			for i, asked := range []plan.Desire{
				{},
				{Want: &value{}},
				{Want: &value{}, Failure: failed},
				{Want: &value{}, Invalid: errors.New("invalid")},
			} {
				w := newWorld(t)
				states[state](w)
				n := w.node("a")
				asked.WantRev = max(1, n.WantRev)
				asked.Orphan = n.Orphan && asked.Want == nil
				w.SetDesire(w.id("a"), asked)
				got := n.PhaseBeforeDoubt()
				if got != want[i] {
					t.Errorf("desire %d: phase %d, want %d", i, got, want[i])
				}
				if doubtful := n.Present() && !n.There(); doubtful {
					got = plan.Doubtful
				}
				if n.Phase() != got {
					t.Errorf("desire %d: phase %d, want %d", i, n.Phase(), got)
				}
			}
		})
	}
}

func TestALostObjectIsDriftedUntilAPlanFindsThatItWaits(t *testing.T) {
	w := applied(t, map[string]*value{"a": {}})
	w.node("a").Drifted = true
	w.Missing(w.id("a"))
	if p := w.node("a").Phase(); p != plan.Drifted {
		t.Errorf("phase %d", p)
	}
}
