package plan_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/weftnet/weft/kvscheduler/plan"
)

// machine is a world with the values that are really there. Its operations fail the test if they break what the machine
// needs.
type machine struct {
	*world
	rt     *rapid.T
	values map[string]*value
}

// isServed reports whether the machine has what a value needs.
func (m *machine) isServed(name string, v *value) bool {
	for _, d := range v.deps {
		served := m.values[d.On.Name] != nil
		if d.Any != nil {
			served = false
			for other, o := range m.values {
				served = served || other != name && o.bucket == d.Any.Bucket
			}
		}
		if !served {
			return false
		}
	}
	return true
}

// do executes an operation, and checks the machine before and after it.
func (m *machine) do(o plan.Op) {
	n := m.Node(o.ID)
	name := n.Ref.Name
	have := m.values[name]
	want := n.Want
	switch {
	case (o.Verb == plan.Create) != (have == nil):
		m.rt.Fatalf("%s %s, and the machine has %v", o.Verb, name, have)
	case o.Verb == plan.Delete:
		delete(m.values, name)
	case o.Verb == plan.Update && have.fixed != want.(*value).fixed:
		m.rt.Fatalf("%s is updated, and has to be recreated", name)
	case !m.isServed(name, want.(*value)):
		m.rt.Fatalf("%s %s without what it needs: %v", o.Verb, name, want.(*value).deps)
	default:
		m.values[name] = want.(*value)
	}
	for other, v := range m.values {
		if !m.isServed(other, v) {
			m.rt.Fatalf("%s %s takes from %s what it stands on", o.Verb, name, other)
		}
	}
	m.Applied(o.ID, o.Verb, nil)
}

// execute executes a plan level by level. The operations of a level come in any order.
func (m *machine) execute(label string, dirty ...string) {
	ops := m.plan(m.ids(dirty...))
	for i := 0; i < len(ops); {
		j := i
		for j < len(ops) && ops[j].Level == ops[i].Level {
			j++
		}
		for _, o := range rapid.Permutation(ops[i:j]).Draw(m.rt, fmt.Sprint(label, " level ", ops[i].Level)) {
			m.do(o)
		}
		i = j
	}
}

// final returns the objects that exist when everything possible is applied. Dependencies lead to names that come
// earlier.
func final(names []string, wanted map[string]*value) map[string]*value {
	m := &machine{values: make(map[string]*value)}
	for _, name := range names {
		if v := wanted[name]; v != nil && m.isServed(name, v) {
			m.values[name] = v
		}
	}
	return m.values
}

var (
	providers = []string{"p1", "p2", "p3"}
	users     = []string{"u1", "u2", "u3", "u4"}
)

// drawWanted draws values: providers are members of buckets, users depend on objects before them and on buckets.
func drawWanted(rt *rapid.T, label string) map[string]*value {
	names := slices.Concat(providers, users)
	wanted := make(map[string]*value)
	for i, name := range names {
		if rapid.IntRange(0, 3).Draw(rt, label+name+" absent") == 0 {
			continue
		}
		v := &value{
			n:     rapid.IntRange(0, 1).Draw(rt, label+name+" n"),
			fixed: rapid.IntRange(0, 1).Draw(rt, label+name+" fixed"),
		}
		if slices.Contains(providers, name) {
			v.bucket = rapid.SampledFrom([]string{"x", "y"}).Draw(rt, label+name+" bucket")
		} else {
			mode := rapid.SampledFrom([]plan.DepMode{plan.Exists, plan.Follow}).Draw(rt, label+name+" mode")
			for _, d := range rapid.SliceOfNDistinct(rapid.SampledFrom(names[:i]), 0, 2, rapid.ID).Draw(rt,
				label+name+" deps") {
				v.deps = append(v.deps, plan.Dep{
					On:   ref(d),
					Mode: mode,
					Swap: rapid.Bool().Draw(rt, label+name+" swap"),
				})
			}
			if bucket := rapid.SampledFrom([]string{"", "x", "y"}).Draw(rt, label+name+" any"); bucket != "" {
				v.deps = append(v.deps, anyOf(bucket))
			}
		}
		wanted[name] = v
	}
	return wanted
}

// Whatever changes, each operation finds what it needs and leaves all others what they stand on, in whatever order the
// operations of a level are done. In the end the machine has what can exist, and a second plan has nothing to do.
func TestAPlanKeepsTheMachineConsistentAfterEachOperationAndReachesTheDesiredState(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &machine{world: newWorld(t), rt: rt, values: make(map[string]*value)}
		names := slices.Concat(providers, users)
		for round := range 3 {
			label := fmt.Sprint("round ", round, " ")
			wanted := drawWanted(rt, label)
			for _, name := range names {
				if v, is := wanted[name]; is {
					m.desire(name, v)
				} else {
					m.desire(name, nil)
				}
			}
			m.execute(label, names...)
			if want := final(names, wanted); !maps.EqualFunc(m.values, want, func(a, b *value) bool {
				return rules{}.Equal(a, b)
			}) {
				rt.Fatalf("round %d: the machine has %v, want %v", round, slices.Sorted(maps.Keys(m.values)),
					slices.Sorted(maps.Keys(want)))
			}
			if rest := m.planned(names...); rest != "" {
				rt.Fatalf("round %d: a second plan does %s", round, rest)
			}
		}
	})
}

// A plan for the objects that changed reaches what a plan for all objects reaches: the others follow by their
// dependencies.
func TestAPlanForTheChangedObjectsIsEnough(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &machine{world: newWorld(t), rt: rt, values: make(map[string]*value)}
		names := slices.Concat(providers, users)
		wanted := drawWanted(rt, "first ")
		for _, name := range names {
			if v := wanted[name]; v != nil {
				m.desire(name, v)
			}
		}
		m.execute("first ", names...)
		m.TakeStirred(nil)
		next := drawWanted(rt, "second ")
		var changed []string
		for _, name := range names {
			if rapid.Bool().Draw(rt, name+" changes") {
				changed = append(changed, name)
				if wanted[name] = next[name]; next[name] == nil {
					delete(wanted, name)
					m.desire(name, nil)
				} else {
					m.desire(name, next[name])
				}
			}
		}
		// as the scheduler does: what gained or lost a candidate is planned, too
		for _, id := range m.TakeStirred(nil) {
			changed = append(changed, m.Node(id).Ref.Name)
		}
		m.execute("second ", changed...)
		if want := final(names, wanted); !maps.EqualFunc(m.values, want, func(a, b *value) bool {
			return rules{}.Equal(a, b)
		}) {
			rt.Fatalf("the machine has %v, want %v", slices.Sorted(maps.Keys(m.values)), slices.Sorted(maps.Keys(want)))
		}
	})
}
