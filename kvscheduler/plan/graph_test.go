package plan_test

import (
	"slices"
	"testing"

	"github.com/weftnet/weft/kvscheduler/plan"
)

func TestEachChangeOfANodeIsOnTheClock(t *testing.T) {
	for name, change := range map[string]func(w *world, id plan.ID){
		"applied":       func(w *world, id plan.ID) { w.Applied(id, plan.Update, nil) },
		"doubtful":      func(w *world, id plan.ID) { w.Doubt(id) },
		"missing":       func(w *world, id plan.ID) { w.Missing(id) },
		"found foreign": func(w *world, id plan.ID) { w.FoundForeign(id, &value{}, nil) },
		"found":         func(w *world, id plan.ID) { w.Found(id, &value{}, nil, true) },
		"failed":        func(w *world, id plan.ID) { w.Fail(id, plan.Failure{}) },
		"desired":       func(w *world, _ plan.ID) { w.desire("a", &value{n: 1}) },
	} {
		t.Run(name, func(t *testing.T) {
			w := applied(t, map[string]*value{"a": {}})
			before := w.Clock
			if change(w, w.id("a")); w.node("a").Touched <= before || w.node("a").Touched > w.Clock {
				t.Errorf("touched at %d, the clock went from %d to %d", w.node("a").Touched, before, w.Clock)
			}
		})
	}
}

func TestMarksLastUntilTheyAreRemoved(t *testing.T) {
	w := applied(t, map[string]*value{"a": {}, "b": {}})
	w.Unmark()
	w.Mark(w.node("a"))
	if !w.Marked(w.node("a")) || w.Marked(w.node("b")) {
		t.Error("a is marked, and b is not")
	}
	if w.Unmark(); w.Marked(w.node("a")) {
		t.Error("a is still marked")
	}
}

func TestAPlanTellsWhatBecomesOfAnObject(t *testing.T) {
	for state, want := range map[string]struct{ stays, pends, waits bool }{
		"absent":                   {true, false, false},
		"applied":                  {true, false, false},
		"applied and orphaned":     {true, false, false},
		"foreign":                  {true, false, true},
		"doubtful, it was absent":  {false, true, true},
		"doubtful, it was applied": {true, false, false},
	} {
		t.Run(state, func(t *testing.T) {
			w := newWorld(t)
			states[state](w)
			w.planned("a")
			if n := w.node("a"); n.Stays() != want.stays || n.Pends() != want.pends || n.Waits() != want.waits {
				t.Errorf("stays %t, pends %t, waits %t, want %+v", n.Stays(), n.Pends(), n.Waits(), want)
			}
		})
	}
	w := applied(t, map[string]*value{"a": {}, "base": {}})
	w.desire("a", &value{n: 1, deps: on("base")})
	w.run("update:a", "a")
	if w.planned("base"); w.node("a").Waits() {
		t.Error("an applied object that is held until its retry does not wait: it is there")
	}
}

func TestAnObjectThatWasSkippedAndIsAppliedIsNoLongerSkipped(t *testing.T) {
	w := newWorld(t)
	w.desire("a", &value{})
	w.LeftOut.Add(w.id("a"))
	if w.run("", "a"); w.LeftOut.Has(w.id("a")) {
		t.Error("it is still noted as skipped")
	}
}

func TestAForeignObjectStandsOnNothing(t *testing.T) {
	w := applied(t, map[string]*value{"a": {}, "b": {deps: on("a")}})
	w.FoundForeign(w.id("b"), &value{deps: on("a")}, nil)
	w.desire("a", nil)
	if by, blocked := w.last.Obstacle(plan.Op{ID: w.id("a"), Verb: plan.Delete}); blocked {
		t.Errorf("the delete of a is blocked by %d", by)
	}
	w.expect("delete:a", "a")
}

func TestObjectsThatWeftDoesNotDesireServeBuckets(t *testing.T) {
	for name, add := range map[string]func(w *world, id plan.ID){
		"a foreign object": func(w *world, id plan.ID) {
			w.FoundForeign(id, &value{bucket: "up"}, nil)
		},
		"an orphan": func(w *world, id plan.ID) {
			w.Found(id, &value{bucket: "up"}, nil, true)
			w.SetOrphan(id, true)
		},
		"an orphan that comes from another bucket": func(w *world, id plan.ID) {
			w.Found(id, &value{bucket: "down"}, nil, true)
			w.SetOrphan(id, true)
			w.Found(id, &value{bucket: "up"}, nil, true)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.desire("user", &value{deps: []plan.Dep{anyOf("up")}})
			w.expect("", "user")
			w.TakeStirred(nil)
			add(w, w.id("candidate"))
			if stirred := w.TakeStirred(nil); !slices.Contains(stirred, w.id("user")) {
				t.Error("the waiting object is not told of its candidate")
			}
			w.expect("create:user", "user")
		})
	}
	w := newWorld(t)
	w.Found(w.id("orphan"), &value{bucket: "up"}, nil, true)
	w.SetOrphan(w.id("orphan"), true)
	w.desire("user", &value{deps: []plan.Dep{anyOf("up")}})
	w.Missing(w.id("orphan"))
	if w.node("orphan").Orphan {
		t.Error("an object that is missing is no orphan")
	}
	w.expect("", "user")
}

// The applied edges of an object lead to the candidates that serve now, and not to those of the time when it was
// applied.
func TestAnObjectMovesToTheCandidatesThatServeNow(t *testing.T) {
	for name, align := range map[string]func(w *world){
		"when it is settled":              func(w *world) { w.Settle(w.id("user")) },
		"when its candidates are re-read": func(w *world) { w.ResolveApplied(w.id("user")) },
	} {
		t.Run(name, func(t *testing.T) {
			w := applied(t, map[string]*value{"one": {bucket: "up"}})
			w.desire("user", &value{deps: []plan.Dep{anyOf("up")}})
			w.run("", "user")
			w.desire("two", &value{bucket: "up"})
			for _, o := range w.plan(w.ids("two")) { // without the user
				w.Applied(o.ID, o.Verb, nil)
			}
			w.desire("one", nil)
			align(w)
			w.expect("delete:one", "one")
		})
	}
}

func TestACandidateServesByItsAppliedValueAsLongAsItsUpdateIsHeld(t *testing.T) {
	w := applied(t, map[string]*value{"one": {bucket: "down"}})
	w.desire("one", &value{bucket: "up"})
	w.run("update:one", "one")
	w.node("one").Permanent = true
	w.desire("user", &value{deps: []plan.Dep{anyOf("up")}})
	w.expect("", "user")
	w.desire("one", &value{bucket: "up", n: 1}) // another value is tried
	w.expect("update:one create:user", "one", "user")
}

func TestACandidateThatDriftedOutOfItsBucketDoesNotServe(t *testing.T) {
	w := applied(t, map[string]*value{"one": {bucket: "up"}})
	w.desire("user", &value{deps: []plan.Dep{anyOf("up")}})
	w.Found(w.id("one"), &value{bucket: "down"}, nil, true)
	w.node("one").Drifted = true
	if missing := w.MissingNow(w.node("user")); !slices.Equal(missing, []string{`any o of "up"`}) {
		t.Errorf("it waits for %q", missing)
	}
	if by, unmet := w.Unmet(w.node("user")); !unmet || by != w.id("one") {
		t.Errorf("unmet %t by %d, want by the candidate", unmet, by)
	}
}

func TestADoubtfulCandidateKeepsAnObject(t *testing.T) {
	w := applied(t, map[string]*value{"one": {bucket: "up"}, "two": {bucket: "up"}})
	w.desire("user", &value{deps: []plan.Dep{anyOf("up")}})
	w.run("", "user")
	w.Doubt(w.id("two"))
	w.desire("one", nil)
	w.expect("delete:one", "one", "user")
}

func TestTheDeleteOfACandidateIsBlockedUnlessAnotherOneServes(t *testing.T) {
	for name, tt := range map[string]struct {
		other   func(w *world)
		blocked bool
	}{
		"the other one serves":            {func(*world) {}, false},
		"the other one is deleted, too":   {func(w *world) { w.desire("two", nil) }, true},
		"the other one leaves the bucket": {func(w *world) { w.desire("two", &value{bucket: "down"}) }, true},
		"the other one drifted away": {func(w *world) {
			w.Found(w.id("two"), &value{bucket: "down"}, nil, true)
			w.node("two").Drifted = true
		}, true},
		"the other one is missing": {func(w *world) { w.Missing(w.id("two")) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := applied(t, map[string]*value{"one": {bucket: "up"}, "two": {bucket: "up"}})
			w.desire("user", &value{deps: []plan.Dep{anyOf("up")}})
			w.run("", "user")
			w.desire("one", nil)
			tt.other(w)
			w.planned("one", "two")
			if by, blocked := w.last.Obstacle(plan.Op{ID: w.id("one"), Verb: plan.Delete}); blocked != tt.blocked ||
				blocked && by != w.id("user") {
				t.Errorf("blocked %t by %d, want %t", blocked, by, tt.blocked)
			}
		})
	}
}

func TestOnlyTheMakerOfAPartIsRecreated(t *testing.T) {
	w := applied(t, map[string]*value{
		"maker":  {},
		"needed": {},
		"part":   {deps: append(needs(plan.Part, "maker"), on("needed")...)},
	})
	if makers := w.RecreateMakers(w.node("part")); !slices.Equal(makers, w.ids("maker")) || w.node("needed").Again {
		t.Errorf("makers %v, needed again %t", makers, w.node("needed").Again)
	}
	w.desire("part", nil)
	if makers := w.RecreateMakers(w.node("part")); makers != nil {
		t.Errorf("a part that is not desired recreates %v", makers)
	}
	w.FoundForeign(w.id("maker"), &value{}, nil)
	w.desire("part", &value{deps: needs(plan.Part, "maker")})
	if makers := w.RecreateMakers(w.node("part")); makers != nil {
		t.Errorf("a foreign maker is recreated: %v", makers)
	}
}

// The planner leaves its notes on nodes. Notes of an earlier plan must not count.
func TestAPlanIgnoresWhatEarlierPlansDid(t *testing.T) {
	w := applied(t, map[string]*value{"a": {}, "b": {deps: on("a")}})
	w.planned("b")
	if cause, is := w.last.Followed(w.node("b")); is {
		t.Errorf("b follows %s, which this plan does not change", cause.Ref)
	}
	w.desire("b", &value{n: 1, deps: on("a")})
	w.expect("update:b", "b")
}

func TestAnObjectDoesNotWaitForWhatIsAboutToBeCreated(t *testing.T) {
	w := newWorld(t)
	w.desire("b", &value{})
	w.desire("a", &value{deps: on("b")})
	if w.planned("a", "b"); w.last.WaitsForWaiting(w.node("a")) {
		t.Error("b is created by this plan")
	}
}

func TestANodeIsKeptAsLongAsItIsNeeded(t *testing.T) {
	for name, tt := range map[string]struct {
		need func(w *world)
		kept bool
	}{
		"nothing needs it":            {func(*world) {}, false},
		"it is desired":               {func(w *world) { w.desire("a", &value{}) }, true},
		"it is on the machine":        {func(w *world) { w.Found(w.id("a"), &value{}, nil, true) }, true},
		"it is doubtful":              {func(w *world) { w.Doubt(w.id("a")) }, true},
		"it is first in the retries":  {func(w *world) { w.node("a").RetrySlot = 0 }, true},
		"it was applied by a restart": {func(w *world) { w.node("a").Last = &value{} }, true},
		"an object depends on it":     {func(w *world) { w.desire("b", &value{deps: on("a")}) }, true},
		"it was skipped":              {func(w *world) { w.LeftOut.Add(w.id("a")) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			id := w.id("a")
			tt.need(w)
			w.Sweep([]plan.ID{id})
			if _, kept := w.Lookup(ref("a")); kept != tt.kept {
				t.Errorf("kept %t, want %t", kept, tt.kept)
			}
		})
	}
}

func TestADependencyIsFreedWithItsLastDependent(t *testing.T) {
	w := newWorld(t)
	w.desire("b", &value{deps: on("a")})
	w.desire("c", &value{deps: on("a")})
	w.desire("b", nil)
	w.Sweep(w.ids("b"))
	if _, kept := w.Lookup(ref("a")); !kept {
		t.Error("c depends on it")
	}
	w.desire("c", nil)
	w.Sweep(w.ids("c"))
	for _, name := range []string{"a", "b", "c"} {
		if _, kept := w.Lookup(ref(name)); kept {
			t.Errorf("%s is kept", name)
		}
	}
	count := len(w.Nodes())
	for _, name := range []string{"d", "e", "f"} { // one is free, then none
		w.Intern(ref(name))
	}
	if len(w.Nodes()) != count {
		t.Errorf("%d nodes, and %d before: a free one was not used", len(w.Nodes()), count)
	}
	w.desire("d", &value{})
	w.expect("create:d", "d")
}

// An edge is more than its ends: a change of the mode or of Swap alone counts from the update on.
func TestTheModeOfADependencyChangesWithTheValue(t *testing.T) {
	t.Run("mode", func(t *testing.T) {
		w := applied(t, map[string]*value{"a": {}, "b": {deps: on("a")}})
		w.desire("b", &value{n: 1, deps: needs(plan.Follow, "a")})
		w.run("", "b")
		w.desire("a", &value{n: 1})
		w.expect("delete:b update:a create:b", "a")
		w.run("", "a")
		w.desire("b", &value{deps: on("a")})
		w.run("", "b")
		w.desire("a", &value{n: 2})
		w.expect("update:a", "a")
	})
	t.Run("swap", func(t *testing.T) {
		w := applied(t, map[string]*value{"a": {}, "b": {deps: on("a")}})
		w.desire("b", &value{n: 1, deps: []plan.Dep{{On: ref("a"), Swap: true}}})
		w.run("", "b")
		w.desire("a", nil)
		w.desire("b", &value{n: 2})
		w.expect("update:b delete:a", "a", "b")
	})
}

func TestAHandleIsThatOfAnObjectThatIsThere(t *testing.T) {
	w := applied(t, map[string]*value{"two": {bucket: "up"}})
	w.desire("user", &value{deps: []plan.Dep{anyOf("up")}})
	w.desire("one", &value{bucket: "up"})
	want := []any{"handle of two"}
	if handles := w.Handles(w.node("user")); !slices.Equal(handles, want) {
		t.Errorf("a candidate that is absent: handles %v, want %v", handles, want)
	}
	w.run("", "one")
	w.Doubt(w.id("one"))
	if handles := w.Handles(w.node("user")); !slices.Equal(handles, want) {
		t.Errorf("a candidate that is doubtful: handles %v, want %v", handles, want)
	}
}

func TestWhatDependsOnACascadeDeletedObjectStaysAway(t *testing.T) {
	w := applied(t, map[string]*value{"base": {}})
	w.Found(w.id("orphan"), &value{deps: on("base")}, nil, true)
	w.SetOrphan(w.id("orphan"), true)
	w.desire("applied", &value{deps: on("orphan")})
	w.run("", "applied")
	w.desire("new", &value{deps: on("orphan")})
	w.desire("base", &value{fixed: 1})
	w.expect("delete:applied delete:orphan delete:base create:base", "base", "new")
}

func TestACandidateThatIsHeldServesByItsAppliedValue(t *testing.T) {
	w := applied(t, map[string]*value{"base": {}, "one": {bucket: "down", deps: on("base")}})
	w.desire("one", &value{bucket: "up", deps: on("base")})
	w.run("update:one", "one")
	w.desire("user", &value{deps: []plan.Dep{anyOf("up")}})
	w.expect("", "base", "user") // the plan affects the candidate, whose retry is not due
}

func TestAPartIsMadeAnewWithTheUpdateOfItsMaker(t *testing.T) {
	w := applied(t, map[string]*value{"maker": {}, "part": {deps: needs(plan.Part, "maker")}})
	w.desire("maker", &value{n: 1})
	w.expect("delete:part update:maker create:part", "maker")
}

func TestAnObjectIsRecreatedOnce(t *testing.T) {
	w := applied(t, map[string]*value{"a": {}})
	w.node("a").Again = true
	w.run("", "a")
	w.expect("", "a")
}

func TestAnObjectThatWaitsOutsideOfThePlanIsNotWaitedFor(t *testing.T) {
	w := newWorld(t)
	w.desire("b", &value{deps: on("never")})
	w.planned("b")
	w.desire("a", &value{deps: on("b")})
	if w.planned("a"); w.last.WaitsForWaiting(w.node("a")) {
		t.Error("b waits, but this plan says nothing about it")
	}
}

func TestAnObjectIsNotChangedWhileItsDependencyIsDoubtful(t *testing.T) {
	w := applied(t, map[string]*value{"a": {}, "b": {deps: on("a")}})
	w.Doubt(w.id("a"))
	w.desire("b", &value{n: 1, deps: on("a")})
	w.expect("", "b")
	w.Found(w.id("a"), &value{}, nil, true)
	w.expect("update:b", "b")
}
