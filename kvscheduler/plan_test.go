package kvscheduler_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/kvscheduler/kvschedulertest"
)

// twoSteps draws a first and a second change for the same world.
func twoSteps(rt *rapid.T, w *world) (first, second []kvscheduler.Object) {
	order := firstOrder()
	first, w.desired = w.change(rt, order)
	second, w.desired = w.change(rt, order)
	return first, second
}

func plainOps(rec *kvscheduler.Record) []string {
	out := make([]string, len(rec.Ops))
	for i, o := range rec.Ops {
		out[i] = fmt.Sprintf("%d %s %s %s %+v %+v", o.Level, o.Verb, o.Ref, o.Why, o.Old, o.New)
	}
	return out
}

func TestTheSameInputGivesTheSamePlan(t *testing.T) {
	check(t, func(rt *rapid.T) {
		w := start(rt, kvschedulertest.New(), nil)
		defer w.end()
		first, second := twoSteps(rt, w)
		var plans [][]string
		for range 2 {
			x := start(rt, kvschedulertest.New(), nil)
			rand.Shuffle(len(first), func(i, j int) { first[i], first[j] = first[j], first[i] })
			rand.Shuffle(len(second), func(i, j int) { second[i], second[j] = second[j], second[i] })
			_, _ = x.commit(kvscheduler.BestEffort, first...)
			rec, _ := x.s.Plan(context.Background(), kvscheduler.Txn{Source: "test", Set: second})
			plans = append(plans, plainOps(rec))
			x.end()
		}
		if !slices.Equal(plans[0], plans[1]) {
			rt.Fatalf("two plans:\n%q\n%q", plans[0], plans[1])
		}
	})
}

func TestAPlanIsWhatTheCommitDoes(t *testing.T) {
	check(t, func(rt *rapid.T) {
		w := start(rt, kvschedulertest.New(), nil)
		defer w.end()
		first, second := twoSteps(rt, w)
		_, _ = w.commit(kvscheduler.BestEffort, first...)
		w.m.Calls()
		dry, _ := w.s.Plan(context.Background(), kvscheduler.Txn{Source: "test", Set: second})
		if calls := w.m.Calls(); len(calls) > 0 {
			rt.Fatalf("a dry run made %v", calls)
		}
		rec, _ := w.commit(kvscheduler.BestEffort, second...)
		if !slices.Equal(ops(dry), ops(rec)) {
			rt.Fatalf("planned %q\ndone %q", ops(dry), ops(rec))
		}
		if got, want := missingOf(dry), missingOf(rec); !slices.Equal(got, want) {
			for _, m := range got { // a dry run lists all affected objects that wait
				if !slices.Contains(want, m) {
					rt.Fatalf("planned to wait %q, wait %q", got, want)
				}
			}
		}
	})
}

func missingOf(rec *kvscheduler.Record) (out []string) {
	for _, p := range rec.Pending {
		out = append(out, p.Ref+": "+strings.Join(p.Missing, ","))
	}
	slices.Sort(out)
	return out
}

// A pod may get the address that another pod releases in the same transaction.
func TestUpdatesComeBeforeCreations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, kvschedulertest.New(), nil)
		defer w.end()
		w.put(put("a/2", thing{}))
		rec := w.put(put("a/1", thing{}), put("a/2", thing{Version: 1}), put("a/3", thing{}))
		var order []string
		for _, o := range rec.Ops {
			order = append(order, o.Verb+" "+o.Ref)
		}
		if want := []string{"update a/2", "create a/1", "create a/3"}; !slices.Equal(order, want) {
			t.Errorf("order %q, expected %q", order, want)
		}
	})
}

func TestAnUnchangedObjectGetsNoOperation(t *testing.T) {
	check(t, func(rt *rapid.T) {
		w := start(rt, kvschedulertest.New(), nil)
		defer w.end()
		first, second := twoSteps(rt, w)
		_, _ = w.commit(kvscheduler.BestEffort, first...)
		before := w.m.Live()
		rec, _ := w.commit(kvscheduler.BestEffort, second...)
		after := w.m.Live()
		moved := make(map[string]bool)
		for _, o := range rec.Ops {
			moved[o.Ref] = true
		}
		for r, v := range after {
			if old, was := before[r]; was && old == v && moved[r.String()] &&
				!slices.ContainsFunc(strings.Fields(v.Needs+" "+v.Follows), func(n string) bool { return moved[n] }) {
				rt.Fatalf("%s and what it needs did not change, but %q", r, ops(rec))
			}
		}
	})
}

func TestARecreateRecreatesExactlyTheDependents(t *testing.T) {
	check(t, func(rt *rapid.T) {
		w := start(rt, kvschedulertest.New(), nil)
		defer w.end()
		first, after := w.change(rt, firstOrder())
		_, _ = w.commit(kvscheduler.BestEffort, first...)
		live := expected(after)
		if len(live) == 0 {
			return
		}
		target := rapid.SampledFrom(slices.SortedFunc(mapsKeys(live), compareRefs)).Draw(rt, "target")
		v := live[target]
		recreate := rapid.Bool().Draw(rt, "recreate")
		if recreate {
			v.Type = 1 - v.Type
		} else {
			v.Version++
		}
		rec := w.put(put(target.String(), v))
		want := map[string]bool{target.String(): recreate}
		spread(live, want, target, recreate)
		for r := range live {
			created := slices.ContainsFunc(rec.Ops, func(o kvscheduler.OpRecord) bool {
				return o.Ref == r.String() && o.Verb == "create"
			})
			if created != want[r.String()] {
				rt.Fatalf("%s recreated: %v, want %v, after a change of %s: %q", r, created, want[r.String()], target,
					ops(rec))
			}
		}
		w.noWrong()
	})
}

// spread marks what has to be recreated when target is recreated or, with recreated false, updated in place.
func spread(live map[ref]thing, marked map[string]bool, target ref, recreated bool) {
	for r, v := range live {
		refs := v.Follows
		if recreated {
			refs += " " + v.Needs
		}
		if slices.Contains(strings.Fields(refs), target.String()) && !marked[r.String()] {
			marked[r.String()] = true
			spread(live, marked, r, true)
		}
	}
}

func TestABatchHoldsEachObjectOnceAndNoTwoThatDepend(t *testing.T) {
	check(t, func(rt *rapid.T) {
		w := start(rt, kvschedulertest.New(), func(c *kvscheduler.Config) { c.Limit(kvscheduler.Limits{Batch: 3}) })
		defer w.end()
		first, second := twoSteps(rt, w)
		for _, set := range [][]kvscheduler.Object{first, second} {
			w.m.Calls()
			rec, _ := w.commit(kvscheduler.BestEffort, set...)
			checkBatches(rt, rec, w.m.Calls(), w.m.Live())
		}
	})
}

func checkBatches(rt *rapid.T, rec *kvscheduler.Record, calls []kvschedulertest.Call, live map[ref]thing) {
	var done []string
	for _, c := range calls {
		if len(c.Names) > 3 {
			rt.Fatalf("a batch of %d", len(c.Names))
		}
		for _, n := range c.Names {
			r := ref{Kind: c.Kind, Name: n}
			done = append(done, c.Verb.String()+" "+r.String())
			if together := dependsOnOneOf(live[r], c); together != "" {
				rt.Fatalf("%s and %s in one batch", r, together)
			}
		}
	}
	var planned []string
	seen := make(map[string]bool)
	for _, o := range rec.Ops {
		planned = append(planned, o.Verb+" "+o.Ref)
		at := fmt.Sprint(o.Level, o.Ref)
		if seen[at] {
			rt.Fatalf("%s twice in level %d", o.Ref, o.Level)
		}
		seen[at] = true
	}
	slices.Sort(done)
	slices.Sort(planned)
	if !slices.Equal(done, planned) {
		rt.Fatalf("planned %q, done %q", planned, done)
	}
}

func dependsOnOneOf(v thing, c kvschedulertest.Call) string {
	for _, need := range strings.Fields(v.Needs) {
		if c.Verb == kvscheduler.Create && key(need).Kind == c.Kind && slices.Contains(c.Names, key(need).Name) {
			return need
		}
	}
	return ""
}
