package plan_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weftnet/weft/kvscheduler/plan"
)

// value is a desired or applied value of the tests' kind.
type value struct {
	n      int    // an update changes it
	fixed  int    // a change recreates the object
	gentle bool   // an update to it does not disturb those that follow
	bucket string // where it can serve Any dependencies
	deps   []plan.Dep
}

// rules are those of the tests' kind "o".
type rules struct{}

func (rules) Equal(want, have any) bool {
	a := want.(*value)
	b := have.(*value)
	return a.n == b.n && a.fixed == b.fixed && a.bucket == b.bucket && fmt.Sprint(a.deps) == fmt.Sprint(b.deps)
}
func (rules) Recreate(have, want any) bool          { return have.(*value).fixed != want.(*value).fixed }
func (rules) Disturbs(_, want any) bool             { return !want.(*value).gentle }
func (rules) Deps(_ string, v any) []plan.Dep       { return v.(*value).deps }
func (rules) Bucket(_ string, v any) (string, bool) { return v.(*value).bucket, true }
func on(names ...string) (deps []plan.Dep)          { return needs(plan.Exists, names...) }
func ref(name string) plan.Ref                      { return plan.Ref{Kind: "o", Name: name} }
func anyOf(bucket string) plan.Dep                  { return plan.Dep{Any: &plan.Select{Kind: "o", Bucket: bucket}} }
func needs(m plan.DepMode, ns ...string) (d []plan.Dep) {
	for _, n := range ns {
		d = append(d, plan.Dep{On: ref(n), Mode: m})
	}
	return d
}

// world is a graph whose operations the tests execute themselves.
type world struct {
	*plan.Graph
	t   testing.TB
	rev uint64
	now time.Time

	last *plan.Plan
}

// plan makes a plan and returns its operations.
func (w *world) plan(dirty []plan.ID) []plan.Op {
	w.last = w.Plan(dirty, w.now)
	return w.last.Ops
}

func newWorld(t testing.TB) *world {
	w := &world{Graph: plan.New(map[plan.Kind]plan.Rules{"o": rules{}}), t: t, now: time.Unix(1000, 0)}
	w.plan(nil)
	return w
}

func (w *world) id(name string) plan.ID      { return w.Intern(ref(name)) }
func (w *world) node(name string) *plan.Node { return w.Node(w.id(name)) }
func (w *world) ids(names ...string) (ids []plan.ID) {
	for _, n := range names {
		ids = append(ids, w.id(n))
	}
	return ids
}

// desire sets what is desired of an object; nil: nothing.
func (w *world) desire(name string, v *value) {
	w.rev++
	d := plan.Desire{WantRev: w.rev, Source: "test"}
	if v != nil {
		d.Want = v
	}
	w.SetDesire(w.id(name), d)
}

// planned returns the plan for the named objects as text, one operation a word.
func (w *world) planned(dirty ...string) string {
	w.t.Helper()
	var words []string
	for _, o := range w.plan(w.ids(dirty...)) {
		words = append(words, o.Verb.String()+":"+w.Node(o.ID).Ref.Name)
	}
	return strings.Join(words, " ")
}

// run executes the plan for the named objects. Operations that fail, by "verb:name", are noted as failed.
func (w *world) run(fail string, dirty ...string) {
	w.t.Helper()
	for _, o := range w.plan(w.ids(dirty...)) {
		if _, blocked := w.last.Obstacle(o); blocked {
			w.LeftOut.Add(o.ID)
			continue
		}
		n := w.Node(o.ID)
		if o.Verb.String()+":"+n.Ref.Name == fail {
			w.Fail(o.ID, plan.Failure{Err: errors.New("refused"), Attempt: 1, RetryAt: w.now.Add(time.Minute)})
			continue
		}
		w.Applied(o.ID, o.Verb, "handle of "+n.Ref.Name)
	}
}

// applied makes a world in which these objects are desired and applied.
func applied(t testing.TB, values map[string]*value) *world {
	t.Helper()
	w := newWorld(t)
	var names []string
	for name, v := range values {
		w.desire(name, v)
		names = append(names, name)
	}
	w.run("", names...)
	for _, name := range names {
		if !w.node(name).Matches() {
			t.Fatalf("%s is not applied", name)
		}
	}
	return w
}

func (w *world) expect(want string, dirty ...string) {
	w.t.Helper()
	if got := w.planned(dirty...); got != want {
		w.t.Errorf("the plan is %q, want %q", got, want)
	}
}

func TestObjectsAreCreatedAfterTheirDependenciesAndDeletedBeforeThem(t *testing.T) {
	w := newWorld(t)
	w.desire("c", &value{deps: on("b")})
	w.desire("b", &value{deps: on("a")})
	w.desire("a", &value{})
	w.expect("create:a create:b create:c", "c", "b", "a")
	w.run("", "a", "b", "c")
	w.desire("a", nil)
	w.expect("delete:c delete:b delete:a", "a")
}

func TestAPlanDoesNotDependOnTheOrderOfItsInput(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t)
		names := []string{"a", "b", "c", "d", "e"}
		for i, name := range names {
			w.desire(name, &value{
				deps: on(rapid.SliceOfDistinct(rapid.SampledFrom(append([]string{"x"}, names[:i]...)), rapid.ID).Draw(
					rt, name)...),
			})
		}
		first := w.planned(names...)
		if again := w.planned(rapid.Permutation(names).Draw(rt, "order")...); first != again {
			rt.Fatalf("%q, and in another order %q", first, again)
		}
	})
}

func TestAnObjectPendsUntilAllItsDependenciesAreApplied(t *testing.T) {
	w := newWorld(t)
	w.desire("a", &value{deps: on("b", "c")})
	w.desire("b", &value{})
	w.run("", "a", "b")
	if n := w.node("a"); !n.Pends() || !n.Waits() || !slices.Equal(w.MissingNow(n), []string{"o/c"}) {
		t.Errorf("pends: %t, waits for %q", n.Pends(), w.MissingNow(n))
	}
	w.desire("c", &value{})
	w.expect("create:c create:a", "c")
}

func TestAnUpdateThatDisturbsNoDependentLeavesThoseAloneThatFollow(t *testing.T) {
	w := applied(t, map[string]*value{
		"a":       {},
		"follows": {deps: needs(plan.Follow, "a")},
		"part":    {deps: needs(plan.Part, "a")},
	})
	w.desire("a", &value{n: 1, gentle: true})
	w.expect("update:a", "a")
	w.run("update:a", "a")
	w.desire("a", &value{n: 2, gentle: true})
	w.Found(w.id("a"), &value{n: 2}, nil, false)
	w.expect("delete:follows delete:part update:a create:follows create:part", "a")
}

func TestAnUpdateInPlaceLeavesDependentsAloneUnlessTheyFollow(t *testing.T) {
	w := applied(t, map[string]*value{"a": {}, "exists": {deps: on("a")}, "follows": {deps: needs(plan.Follow, "a")}})
	w.desire("a", &value{n: 1})
	w.expect("delete:follows update:a create:follows", "a")
	if cause, torn := w.last.Cause(w.node("follows")); !torn || cause.Ref.Name != "a" {
		t.Errorf("the cause is %v (%t)", cause, torn)
	}
}

func TestADependencyThatAnUpdateReplacesIsDeletedAfterwards(t *testing.T) {
	swap := func(names ...string) (deps []plan.Dep) {
		for _, n := range names {
			deps = append(deps, plan.Dep{On: ref(n), Swap: true})
		}
		return deps
	}
	t.Run("by a new one", func(t *testing.T) {
		w := applied(t, map[string]*value{"old": {}, "user": {deps: swap("old")}})
		w.desire("old", nil)
		w.desire("new", &value{})
		w.desire("user", &value{n: 1, deps: swap("new")})
		w.expect("create:new update:user delete:old", "old", "new", "user")
		w.run("update:user", "old", "new", "user")
		if !w.node("old").There() {
			t.Error("old was deleted although the update failed")
		}
		w.expect("update:user delete:old", "old", "user")
	})
	t.Run("of two users", func(t *testing.T) {
		w := applied(t, map[string]*value{"old": {}, "a": {deps: swap("old")}, "b": {deps: swap("old")}})
		w.desire("old", nil)
		w.desire("a", &value{n: 1})
		w.desire("b", nil)
		w.expect("delete:b update:a delete:old", "old", "a", "b")
	})
	t.Run("unless it is still needed", func(t *testing.T) {
		w := applied(t, map[string]*value{"old": {}, "user": {deps: swap("old")}})
		w.desire("old", nil)
		w.expect("delete:user delete:old", "old")
	})
	t.Run("unless it cannot wait", func(t *testing.T) {
		w := applied(t, map[string]*value{"base": {}, "old": {deps: on("base")}, "user": {deps: swap("old")}})
		w.desire("base", &value{fixed: 1})
		w.desire("old", nil)
		w.desire("user", &value{n: 1})
		w.expect("delete:user delete:old delete:base create:base create:user", "base", "old", "user")
	})
	t.Run("without the option", func(t *testing.T) {
		w := applied(t, map[string]*value{"old": {}, "user": {deps: on("old")}})
		w.desire("old", nil)
		w.desire("user", &value{n: 1})
		w.expect("delete:user delete:old create:user", "old", "user")
	})
}

func TestARecreatedObjectTakesItsDependentsWithIt(t *testing.T) {
	w := applied(t, map[string]*value{"a": {}, "b": {deps: on("a")}, "c": {deps: on("b")}, "other": {}})
	w.desire("a", &value{fixed: 1})
	w.expect("delete:c delete:b delete:a create:a create:b create:c", "a")
}

func TestAMissingPartRecreatesItsMaker(t *testing.T) {
	w := applied(t, map[string]*value{"maker": {}, "part": {deps: needs(plan.Part, "maker")}})
	makers := w.RecreateMakers(w.node("part"))
	w.Missing(w.id("part"))
	if !slices.Equal(makers, w.ids("maker")) {
		t.Fatalf("makers %v", makers)
	}
	w.expect("delete:maker create:maker create:part", "part", "maker")
}

func TestAForeignObjectIsNeverTouched(t *testing.T) {
	w := newWorld(t)
	w.desire("a", &value{n: 1})
	w.FoundForeign(w.id("a"), &value{n: 2}, nil)
	w.expect("", "a")
	if n := w.node("a"); !n.Waits() || len(w.MissingNow(n)) != 1 {
		t.Errorf("it waits for %q", w.MissingNow(n))
	}
	w.desire("a", nil)
	w.expect("", "a")
}

func TestAnOrphanIsDeletedOnlyWhenItIsNoneAnyMoreOrItsDependencyGoes(t *testing.T) {
	w := applied(t, map[string]*value{"base": {}})
	w.Found(w.id("orphan"), &value{deps: on("base")}, nil, true)
	w.SetOrphan(w.id("orphan"), true)
	w.expect("", "orphan")
	w.desire("base", nil)
	w.expect("delete:orphan delete:base", "base")
	w.desire("base", &value{})
	w.SetOrphan(w.id("orphan"), false)
	w.expect("delete:orphan", "orphan")
}

func TestNothingIsDoneWithADoubtfulObject(t *testing.T) {
	w := applied(t, map[string]*value{"a": {}, "b": {deps: on("a")}})
	w.desire("b", &value{n: 1, deps: on("a")})
	w.Doubt(w.id("b"))
	w.expect("", "b")
	if n := w.node("b"); !n.Present() || n.There() || n.Matches() {
		t.Errorf("present %t, there %t, in sync %t", n.Present(), n.There(), n.Matches())
	}
	w.desire("a", nil)
	if by, blocked := w.last.Obstacle(plan.Op{ID: w.id("a"), Verb: plan.Delete}); !blocked || by != w.id("b") {
		t.Errorf("the delete of the dependency is not blocked: %d", by)
	}
	w.Missing(w.id("b"))
	w.desire("a", &value{})
	w.expect("create:b", "b")
}

// A doubtful object may stand on what its old and what its new value needs. After it was read back, only one of them
// counts.
func TestADoubtfulObjectKeepsTheDependenciesOfBothValues(t *testing.T) {
	w := applied(t, map[string]*value{"old": {}, "new": {}, "a": {deps: on("old")}})
	w.desire("a", &value{deps: on("new")})
	w.Doubt(w.id("a"))
	blocked := func(name string) bool {
		_, is := w.last.Obstacle(plan.Op{ID: w.id(name), Verb: plan.Delete})
		return is
	}
	if !blocked("old") || !blocked("new") {
		t.Error("a dependency of the doubtful object can be deleted")
	}
	w.Found(w.id("a"), &value{deps: on("old")}, nil, true)
	if !blocked("old") || blocked("new") {
		t.Errorf("after the read back: old blocked %t, new blocked %t", blocked("old"), blocked("new"))
	}
}

func TestAFailedObjectIsHeldUntilItsRetryUnlessItIsAskedFor(t *testing.T) {
	w := applied(t, map[string]*value{"a": {}, "b": {deps: on("a")}})
	w.desire("b", &value{n: 1, deps: on("a")})
	w.run("update:b", "b")
	w.expect("", "a")
	w.expect("update:b", "b")
	w.now = w.now.Add(2 * time.Minute)
	w.expect("update:b", "a")
	n := w.node("b")
	n.Permanent = true
	w.expect("", "a")
}

func TestAnOperationIsBlockedByTheFailureOfAnother(t *testing.T) {
	w := newWorld(t)
	w.desire("a", &value{})
	w.desire("b", &value{deps: on("a")})
	w.run("create:a", "a", "b")
	if w.node("b").Present() || !w.LeftOut.Has(w.id("b")) {
		t.Error("b was created without its dependency")
	}
	if len(w.LeftOut) != 1 {
		t.Errorf("left out: %v", w.LeftOut)
	}
}

func TestAnAnyDependencyIsServedByEachMemberOfItsBucket(t *testing.T) {
	w := newWorld(t)
	w.desire("a", &value{deps: []plan.Dep{anyOf("up")}})
	w.run("", "a")
	if n := w.node("a"); !n.Waits() || !slices.Equal(w.MissingNow(n), []string{`any o of "up"`}) {
		t.Errorf("it waits for %q", w.MissingNow(n))
	}
	w.TakeStirred(nil)
	w.desire("one", &value{bucket: "up"})
	w.desire("two", &value{bucket: "up"})
	if stirred := w.TakeStirred(nil); !slices.Contains(stirred, w.id("a")) {
		t.Error("the waiting object is not told of its candidates")
	}
	w.run("", "one", "two", "a")
	if handles := w.Handles(w.node("a")); !slices.Equal(handles, []any{"handle of one"}) {
		t.Errorf("handles %v", handles)
	}
	w.desire("one", nil)
	w.expect("delete:one", "one")
	w.run("", "one")
	w.desire("two", &value{bucket: "down"})
	w.expect("delete:a update:two", "two", "a")
}

func TestACycleIsNamedFromItsSmallestMember(t *testing.T) {
	w := newWorld(t)
	w.desire("c", &value{deps: on("a")})
	w.desire("b", &value{deps: on("c")})
	w.desire("a", &value{deps: on("b")})
	for _, from := range []string{"a", "b", "c"} {
		if err := w.Cycle(w.ids(from)); !errors.Is(err, plan.ErrCycle) ||
			!strings.Contains(err.Error(), "o/a -> o/b -> o/c -> o/a") {
			t.Errorf("from %s: %v", from, err)
		}
	}
	w.desire("a", &value{})
	if err := w.Cycle(w.ids("a", "b", "c")); err != nil {
		t.Error(err)
	}
}

func TestAnUpdateThatWouldCloseACycleOfAppliedObjectsIsBlocked(t *testing.T) {
	w := applied(t, map[string]*value{"a": {deps: on("b")}, "b": {}})
	w.desire("a", &value{n: 1})
	w.desire("b", &value{n: 1, deps: on("a")})
	w.run("update:a", "a", "b")
	if n := w.node("b"); n.Matches() {
		t.Error("b depends on a now, and a still depends on b")
	}
	w.now = w.now.Add(time.Hour)
	w.run("", "a", "b")
	if !w.node("a").Matches() || !w.node("b").Matches() {
		t.Error("the retry does not repair")
	}
}

func TestAValueThatIsNotProvenIsUpdated(t *testing.T) {
	w := newWorld(t)
	w.Found(w.id("a"), &value{}, nil, false)
	w.desire("a", &value{})
	if n := w.node("a"); !n.Stale() || n.Matches() {
		t.Error("it counts as in sync")
	}
	w.expect("update:a", "a")
	w.Prove(w.id("a"), &value{})
	w.expect("", "a")
	if !w.Settle(w.id("a")) || w.node("a").HaveRev != w.node("a").WantRev || w.Settle(w.id("a")) {
		t.Error("it is not settled once")
	}
}

func TestNodesAreFreedWhenNothingRefersToThem(t *testing.T) {
	w := applied(t, map[string]*value{"a": {bucket: "x"}, "b": {deps: []plan.Dep{{On: ref("a")}, anyOf("x")}}})
	before := len(w.Nodes())
	w.BeginDump()
	for _, name := range []string{"a", "b"} {
		w.desire(name, nil)
	}
	ids := w.ids("a", "b")
	w.run("", "a", "b")
	w.Sweep(ids)
	if _, known := w.Lookup(ref("a")); !known {
		t.Error("a node was freed during a dump")
	}
	w.EndDump()
	w.Sweep(nil)
	for _, n := range w.Nodes() {
		if n.Ref != (plan.Ref{}) {
			t.Errorf("%s is left", n.Ref)
		}
	}
	if w.Intern(ref("new")); len(w.Nodes()) != before {
		t.Errorf("%d nodes after %d: freed ones are not used again", len(w.Nodes()), before)
	}
}

func TestAroundVisitsDependenciesAndAllDependents(t *testing.T) {
	w := applied(t, map[string]*value{
		"base":  {},
		"a":     {deps: on("base")},
		"b":     {deps: on("a")},
		"c":     {deps: on("b")},
		"other": {deps: on("base")},
	})
	var seen []string
	w.Around(w.ids("a"), func(n *plan.Node) { seen = append(seen, n.Ref.Name) })
	if slices.Sort(seen); !slices.Equal(slices.Compact(seen), []string{"a", "b", "base", "c"}) {
		t.Errorf("visited %v", seen)
	}
}

// Executing a plan with random failures leads to the desired state once nothing fails any more, and no operation is
// ever done while what it needs is absent.
func TestPlansConvergeWhateverFailed(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t)
		names := []string{"a", "b", "c", "d", "e"}
		draw := func(label string, i int) *value {
			if rapid.IntRange(0, 4).Draw(rt, label+" gone") == 0 {
				return nil
			}
			mode := rapid.SampledFrom([]plan.DepMode{plan.Exists, plan.Follow}).Draw(rt, label+" mode")
			deps := rapid.SliceOfDistinct(rapid.SampledFrom(append([]string{names[0]}, names[:i]...)), rapid.ID).Draw(
				rt, label+" deps")
			deps = slices.DeleteFunc(deps, func(d string) bool { return d == names[i] })
			return &value{
				n:     rapid.IntRange(0, 1).Draw(rt, label+" n"),
				fixed: rapid.IntRange(0, 1).Draw(rt, label+" fixed"),
				deps:  needs(mode, deps...),
			}
		}
		for round := range 3 {
			for i, name := range names {
				w.desire(name, draw(fmt.Sprint(name, round), i))
			}
			verb := rapid.SampledFrom([]string{"", "create", "update", "delete"}).Draw(rt, "failing verb")
			w.run(verb+":"+rapid.SampledFrom(names).Draw(rt, "failing name"), names...)
		}
		for range 4 {
			w.now = w.now.Add(time.Hour)
			clear(w.LeftOut)
			w.run("", names...)
		}
		for _, name := range names {
			n := w.node(name)
			if met := len(w.MissingNow(n)) == 0; n.Want == nil && n.Present() || n.Want != nil && met != n.Matches() {
				rt.Fatalf("%s: desired %v, applied %v, missing %v", name, n.Want, n.Have, w.MissingNow(n))
			}
		}
	})
}
