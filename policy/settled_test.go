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
		small := smallLimits(d)
		small.AllNamespaces = d.IntN(30)
		small.Lookups = 1000
		small.NamespaceLookups = 400
		e := NewEngine(Config{Limits: small})
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
