package plan_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weftnet/weft/kvscheduler/plan"
)

// Ways to bring an object "a" to a state on the machine.
var states = map[string]func(w *world){
	"absent": func(*world) {},
	"applied": func(w *world) {
		w.desire("a", &value{})
		w.run("", "a")
	},
	"applied and to be recreated": func(w *world) {
		w.desire("a", &value{})
		w.run("", "a")
		w.node("a").Again = true
	},
	"applied and orphaned": func(w *world) {
		w.Found(w.id("a"), &value{}, nil, true)
		w.SetOrphan(w.id("a"), true)
	},
	"unproven": func(w *world) { w.Found(w.id("a"), &value{}, nil, false) },
	"foreign":  func(w *world) { w.FoundForeign(w.id("a"), &value{}, nil) },
	"doubtful, it was absent": func(w *world) {
		w.desire("a", &value{})
		w.Doubt(w.id("a"))
	},
	"doubtful, it was applied": func(w *world) {
		w.desire("a", &value{})
		w.run("", "a")
		w.Doubt(w.id("a"))
	},
}

func TestThePlanForOneObjectFollowsFromItsStateAndItsDesiredValue(t *testing.T) {
	same := &value{}
	changed := &value{n: 1}
	fixed := &value{fixed: 1}
	for state, want := range map[string]map[string]string{
		"absent": {
			"nothing": "",
			"same":    "create:a",
			"changed": "create:a",
			"fixed":   "create:a",
			"invalid": "",
		},
		"applied": {
			"nothing": "delete:a",
			"same":    "",
			"changed": "update:a",
			"fixed":   "delete:a create:a",
			"invalid": "delete:a",
		},
		"applied and to be recreated": {
			"nothing": "delete:a",
			"same":    "delete:a create:a",
			"changed": "delete:a create:a",
			"fixed":   "delete:a create:a",
			"invalid": "delete:a",
		},
		"applied and orphaned": {
			"nothing": "",
			"same":    "",
			"changed": "update:a",
			"fixed":   "delete:a create:a",
			"invalid": "delete:a",
		},
		"unproven": {
			"nothing": "delete:a",
			"same":    "update:a",
			"changed": "update:a",
			"fixed":   "delete:a create:a",
			"invalid": "delete:a",
		},
		"foreign":                  {"nothing": "", "same": "", "changed": "", "fixed": "", "invalid": ""},
		"doubtful, it was absent":  {"nothing": "", "same": "", "changed": "", "fixed": "", "invalid": ""},
		"doubtful, it was applied": {"nothing": "", "same": "", "changed": "", "fixed": "", "invalid": ""},
	} {
		for desired, ops := range want {
			t.Run(state+"/"+desired, func(t *testing.T) {
				w := newWorld(t)
				states[state](w)
				orphan := w.node("a").Orphan && desired == "nothing"
				switch desired {
				case "nothing":
					w.desire("a", nil)
					w.SetOrphan(w.id("a"), orphan)
				case "invalid":
					w.SetDesire(w.id("a"), plan.Desire{Want: same, Invalid: errors.New("refused")})
				default:
					w.desire("a", map[string]*value{"same": same, "changed": changed, "fixed": fixed}[desired])
				}
				w.expect(ops, "a")
			})
		}
	}
}

func TestADependencyServesByWhatItIsAtTheEndOfThePlan(t *testing.T) {
	for name, tt := range map[string]struct {
		dependency func(w *world) // of b
		present    string         // the plan for an object that is present
		absent     string         // and for one that is not
	}{
		"it is applied": {func(w *world) { w.desire("a", &value{}); w.run("", "a") }, "", "create:b"},
		"it will be created": {
			// it was lost, and b with it
			func(w *world) { w.desire("a", &value{}) }, "delete:b create:a create:b", "create:a create:b",
		},
		"it will be updated": {
			func(w *world) { w.desire("a", &value{}); w.run("", "a"); w.desire("a", &value{n: 1}) }, "update:a",
			"update:a create:b",
		},
		"it will be recreated": {
			func(w *world) { w.desire("a", &value{}); w.run("", "a"); w.desire("a", &value{fixed: 1}) },
			"delete:b delete:a create:a create:b", "delete:a create:a create:b",
		},
		"it will be deleted": {
			func(w *world) { w.desire("a", &value{}); w.run("", "a"); w.desire("a", nil) }, "delete:b delete:a",
			"delete:a",
		},
		"it is foreign":  {func(w *world) { w.FoundForeign(w.id("a"), &value{}, nil) }, "", "create:b"},
		"it is doubtful": {func(w *world) { w.desire("a", &value{}); w.run("", "a"); w.Doubt(w.id("a")) }, "", ""},
		"it is absent":   {func(*world) {}, "delete:b", ""},
		"its value is wrong": {func(w *world) {
			w.SetDesire(w.id("a"), plan.Desire{Want: &value{}, Invalid: errors.New("no")})
		}, "delete:b", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.Found(w.id("b"), &value{deps: on("a")}, nil, true)
			w.desire("b", &value{deps: on("a")})
			tt.dependency(w)
			w.expect(tt.present, "a", "b")

			w = newWorld(t)
			tt.dependency(w)
			w.desire("b", &value{deps: on("a")})
			w.expect(tt.absent, "a", "b")
		})
	}
}

func TestAnObjectStaysAsLongAsOneCandidateOfItsBucketServes(t *testing.T) {
	for name, tt := range map[string]struct {
		one, two *value // the candidates after the change
		want     string
	}{
		"both stay":             {&value{bucket: "up"}, &value{bucket: "up"}, ""},
		"one is deleted":        {nil, &value{bucket: "up"}, "delete:one"},
		"one leaves the bucket": {&value{bucket: "down"}, &value{bucket: "up"}, "update:one"},
		"one is recreated": {
			&value{bucket: "up", fixed: 1}, &value{bucket: "up"}, "delete:one create:one",
		},
		"both are deleted": {nil, nil, "delete:user delete:one delete:two"},
		"both leave the bucket": {
			&value{bucket: "down"}, &value{bucket: "down"}, "delete:user update:one update:two",
		},
		"both are recreated": {
			&value{bucket: "up", fixed: 1}, &value{bucket: "up", fixed: 1},
			"delete:user delete:one delete:two create:one create:two create:user",
		},
		"one is deleted, the other one changes": {nil, &value{bucket: "up", n: 1}, "delete:one update:two"},
	} {
		t.Run(name, func(t *testing.T) {
			w := applied(t, map[string]*value{"one": {bucket: "up"}, "two": {bucket: "up"}})
			w.desire("user", &value{deps: []plan.Dep{anyOf("up")}})
			w.run("", "user")
			w.desire("one", tt.one)
			w.desire("two", tt.two)
			w.expect(tt.want, "one", "two", "user")
		})
	}
}

func TestACandidateServesOnlyDependenciesThatItsValueMatches(t *testing.T) {
	selected := func(n int) plan.Dep {
		return plan.Dep{
			Any: &plan.Select{Kind: "o", Bucket: "up", Match: func(_ string, v any) bool { return v.(*value).n == n }},
		}
	}
	w := applied(t, map[string]*value{"one": {bucket: "up", n: 1}})
	w.desire("first", &value{deps: []plan.Dep{selected(1)}})
	w.desire("second", &value{deps: []plan.Dep{selected(2)}})
	w.run("", "first", "second")
	if !w.node("first").Matches() || w.node("second").Present() {
		t.Error("the match of the dependency is not asked")
	}
	w.TakeStirred(nil)
	w.desire("one", &value{bucket: "up", n: 2})
	if stirred := w.TakeStirred(nil); !slices.Contains(stirred, w.id("first")) ||
		!slices.Contains(stirred, w.id("second")) {
		t.Errorf("%d objects are disturbed by the change of their candidate, want both", len(stirred))
	}
	w.expect("delete:first update:one create:second", "one", "first", "second")
}

func TestAnObjectIsNoCandidateOfItsOwnDependency(t *testing.T) {
	w := newWorld(t)
	w.desire("a", &value{bucket: "up", deps: []plan.Dep{anyOf("up")}})
	w.expect("", "a")
	w.desire("b", &value{bucket: "up"})
	w.expect("create:b create:a", "a", "b")
}

func TestAPlanSaysWhatIsMissingNowAndWhatWillBe(t *testing.T) {
	w := applied(t, map[string]*value{"there": {}})
	w.desire("coming", &value{})
	w.SetDesire(w.id("a"), plan.Desire{
		Want: &value{deps: append(on("there", "coming", "never"), anyOf("up"))},
	})
	w.planned("coming", "a")
	n := w.node("a")
	if now, want := w.MissingNow(n), []string{"o/coming", "o/never", `any o of "up"`}; !slices.Equal(now, want) {
		t.Errorf("missing now %q, want %q", now, want)
	}
	if after, want := w.last.MissingAfter(n), []string{"o/never", `any o of "up"`}; !slices.Equal(after, want) {
		t.Errorf("missing after the plan %q, want %q", after, want)
	}
	if w.desire("a", nil); w.MissingNow(n) != nil {
		t.Errorf("an object that is not desired waits for %q", w.MissingNow(n))
	}
}

func TestAnObjectWaitsForOthersThatWaitOnlyIfAllOfThemDo(t *testing.T) {
	w := newWorld(t)
	w.desire("b", &value{deps: on("never")})
	w.desire("a", &value{deps: on("b")})
	w.planned("a", "b")
	if !w.last.WaitsForWaiting(w.node("a")) || w.last.WaitsForWaiting(w.node("b")) {
		t.Error("a waits for b, which waits; b waits for what is not desired")
	}
	w.desire("a", &value{deps: append(on("b"), anyOf("up"))})
	w.planned("a", "b")
	if w.last.WaitsForWaiting(w.node("a")) {
		t.Error("a waits for a bucket without candidates, too")
	}
	w.desire("a", &value{})
	w.planned("a", "b")
	if w.last.WaitsForWaiting(w.node("a")) {
		t.Error("a waits for nothing")
	}
}

func TestAnObjectWaitedBeforeOnlyWithTheSameValue(t *testing.T) {
	w := newWorld(t)
	w.desire("a", &value{deps: on("never")})
	w.planned("a")
	before := w.node("a").Desire
	if !w.node("a").WaitedBefore(before) {
		t.Error("it waits with the value that it waited with")
	}
	w.desire("a", &value{n: 1, deps: on("never")})
	w.planned("a")
	if w.node("a").WaitedBefore(before) || w.node("a").WaitedBefore(plan.Desire{}) {
		t.Error("another value, or none, waited before")
	}
}

func TestAnOperationIsBlockedByTheMachine(t *testing.T) {
	for name, tt := range map[string]struct {
		values  map[string]*value
		change  func(w *world)
		op      string
		verb    plan.Verb
		blocked string // by this object; "": by none
	}{
		"the delete of an absent object": {nil, func(*world) {}, "a", plan.Delete, "a"},
		"the delete of a foreign object's neighbour": {
			map[string]*value{"a": {}}, func(w *world) { w.FoundForeign(w.id("b"), &value{deps: on("a")}, nil) }, "a",
			plan.Delete, "",
		},
		"the delete under an object": {
			map[string]*value{"a": {}, "b": {deps: on("a")}}, func(*world) {}, "a", plan.Delete, "b",
		},
		"the delete of a free object": {
			map[string]*value{"a": {}}, func(*world) {}, "a", plan.Delete, "",
		},
		"the create of a present object": {
			map[string]*value{"a": {}}, func(*world) {}, "a", plan.Create, "a",
		},
		"the create without a dependency": {
			nil, func(w *world) { w.desire("a", &value{deps: on("b")}) }, "a", plan.Create, "b",
		},
		"the create of an object that needs nothing": {
			nil, func(w *world) { w.desire("a", &value{}) }, "a", plan.Create, "",
		},
		"the update of an absent object": {
			nil, func(w *world) { w.desire("a", &value{}) }, "a", plan.Update, "a",
		},
		"the update to a missing dependency": {
			map[string]*value{"a": {}}, func(w *world) { w.desire("a", &value{deps: on("b")}) }, "a", plan.Update, "b",
		},
		"the update that takes the last candidate": {
			map[string]*value{"a": {bucket: "up"}, "b": {bucket: "x", deps: []plan.Dep{anyOf("up")}}},
			func(w *world) { w.run("", "b"); w.desire("a", &value{bucket: "down"}) }, "a", plan.Update, "b",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			for _, object := range []string{"a", "b"} { // a first: b depends on it
				if v := tt.values[object]; v != nil {
					w.desire(object, v)
					w.run("", object)
				}
			}
			tt.change(w)
			w.planned("a")
			by, blocked := w.last.Obstacle(plan.Op{ID: w.id(tt.op), Verb: tt.verb})
			if blocked != (tt.blocked != "") || blocked && by != w.id(tt.blocked) {
				t.Errorf("blocked %t by %d, want by %q", blocked, by, tt.blocked)
			}
		})
	}
}

func TestAFailedObjectIsTriedWithTheChangeOfItsDependency(t *testing.T) {
	w := applied(t, map[string]*value{"a": {}, "b": {deps: on("a")}, "other": {deps: on("b")}})
	w.desire("b", &value{n: 1, deps: on("a")})
	w.run("update:b", "b")
	for name, tt := range map[string]struct {
		permanent bool
		change    *value
		want      string
	}{
		"the dependency stays":                             {false, &value{}, ""},
		"the dependency changes":                           {false, &value{n: 1}, "update:a update:b"},
		"the dependency changes under a permanent failure": {true, &value{n: 1}, "update:a update:b"},
	} {
		t.Run(name, func(t *testing.T) {
			w.node("b").Permanent = tt.permanent
			w.desire("a", tt.change)
			w.expect(tt.want, "a")
		})
	}
	if n := w.node("b"); n.Stays() || n.Pends() || n.Recreated() {
		t.Error("the plan updates b")
	}
}

func TestAnOrphanOnADeletedObjectIsDeletedWithItAndStaysAway(t *testing.T) {
	w := applied(t, map[string]*value{"base": {}})
	w.Found(w.id("orphan"), &value{deps: on("base")}, nil, true)
	w.SetOrphan(w.id("orphan"), true)
	w.desire("base", &value{fixed: 1})
	w.expect("delete:orphan delete:base create:base", "base")
	w.run("", "base")
	if n := w.node("orphan"); n.Present() || n.Orphan {
		t.Errorf("present %t, orphan %t", n.Present(), n.Orphan)
	}
}

func TestAReadBackThatFindsTheSameChangesNothing(t *testing.T) {
	w := applied(t, map[string]*value{"a": {}, "b": {deps: on("a")}})
	if w.Found(w.id("b"), &value{deps: on("a")}, "new handle", true) {
		t.Error("an equal value counts as changed")
	}
	if n := w.node("b"); n.Meta != "new handle" {
		t.Errorf("the handle is %v", n.Meta)
	}
	if !w.Found(w.id("b"), &value{}, nil, true) {
		t.Error("another value counts as the same")
	}
	w.expect("update:b", "b")
	if by, blocked := w.last.Obstacle(plan.Op{ID: w.id("a"), Verb: plan.Delete}); blocked {
		t.Errorf("b no longer stands on a, and blocks its delete: %d", by)
	}
}

func TestTheCauseOfAPlanIsNamed(t *testing.T) {
	w := applied(t, map[string]*value{"a": {}, "b": {deps: needs(plan.Follow, "a")}, "c": {deps: on("b")}})
	w.desire("a", &value{n: 1})
	w.planned("a")
	for name, want := range map[string]string{"a": "", "b": "a", "c": "b"} {
		cause, torn := w.last.Cause(w.node(name))
		if torn != (want != "") || torn && cause.Ref.Name != want {
			t.Errorf("the cause of %s: %t, want %q", name, torn, want)
		}
		if w.last.Asked(w.node(name)) != (name == "a") {
			t.Errorf("%s: asked %t", name, w.last.Asked(w.node(name)))
		}
	}
	if followed, is := w.last.Followed(w.node("b")); !is || followed.Ref.Name != "a" {
		t.Error("b does not follow a")
	}
	if _, is := w.last.Followed(w.node("a")); is {
		t.Error("a follows nothing")
	}
	if got := len(w.last.Affected()); got != 3 {
		t.Errorf("%d objects are affected, want 3", got)
	}
}

func TestCyclesAreFoundThroughBuckets(t *testing.T) {
	w := newWorld(t)
	w.desire("a", &value{deps: on("a")})
	if err := w.Cycle(w.ids("a")); !errors.Is(err, plan.ErrCycle) || !strings.Contains(err.Error(), "o/a -> o/a") {
		t.Errorf("an object that needs itself: %v", err)
	}
	w.desire("a", &value{bucket: "up", deps: on("b")})
	w.desire("b", &value{deps: []plan.Dep{anyOf("up")}})
	if err := w.Cycle(w.ids("a", "b")); !errors.Is(err, plan.ErrCycle) {
		t.Errorf("a needs b, and b needs a member of the bucket of a: %v", err)
	}
}

func TestARetryIsDueWhenItsTimeHasCome(t *testing.T) {
	w := applied(t, map[string]*value{"base": {}, "a": {deps: on("base")}})
	w.desire("a", &value{n: 1, deps: on("base")})
	w.run("update:a", "a") // RetryAt is a minute later
	for _, tt := range []struct {
		after time.Duration
		want  string
	}{{0, ""}, {59 * time.Second, ""}, {time.Minute, "update:a"}} {
		w.now = time.Unix(1000, 0).Add(tt.after)
		w.expect(tt.want, "base")
	}
}
