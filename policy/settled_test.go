package policy

import "testing"

// After any changes limits are halved only as often as what is needed then demands: the limits of a full node do not
// outlast their cause.
func TestLimitsOfANodeAreSettledAfterEachChange(t *testing.T) {
	seed := seedOf(t)
	halved := 0
	raised := 0
	starved := 0
	for n := range *policyWorlds / 10 {
		d := newDice(seed, n)
		w := d.world(t)
		e := NewEngine(Config{Limits: Limits{
			Own:           1 + d.IntN(20),
			Node:          d.IntN(60),
			AllNamespaces: d.IntN(30),
			AllServices:   d.IntN(60),
			Further:       1 + d.IntN(2000),
			Admin:         2 + d.IntN(12),
			Services:      d.IntN(12),
			Closed:        2 + d.IntN(6),
			Fixed:         10,
			ReadLimits: ReadLimits{
				Effort:           1 + d.IntN(60),
				Lookups:          1000,
				NamespaceLookups: 400,
				Selectors:        d.IntN(8),
			},
		}})
		w.fill(t, e)
		was := uint(0)
		for step := range 12 {
			for range d.IntN(4) {
				d.change(t, w, e)
			}
			e.Compile()
			e.budget.isUndivided = true
			if again := e.Compile(); len(again) > 0 {
				t.Fatalf("cluster %d, step %d: limits of the node change later: %+v\n%s", n, step, again, show(w))
			}
			if is := e.budget.halved.own; is > 0 {
				halved++
			}
			if e.budget.halved.own < was {
				raised++
			}
			was = e.budget.halved.own
			for _, ns := range e.cluster.namespaces {
				for _, p := range ns.pods {
					starved += min(len(p.starved), 1)
				}
			}
		}
	}
	t.Logf("limits of namespaces were halved after %d changes and raised by %d; %d pods had no rules left", halved,
		raised, starved)
	if halved == 0 || raised == 0 || starved == 0 {
		t.Error("the limits are not effective")
	}
}
