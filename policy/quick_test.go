package policy

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// manyOf returns a requirement of many values. Those with even numbers are among them.
func (d dice) manyOf(key string) metav1.LabelSelectorRequirement {
	r := metav1.LabelSelectorRequirement{
		Key:      key,
		Operator: pick(d, metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn),
	}
	for n := range 1 + d.IntN(3*maxPlaces) {
		r.Values = append(r.Values, fmt.Sprint(2*n))
	}
	d.Shuffle(len(r.Values), func(a, b int) { r.Values[a], r.Values[b] = r.Values[b], r.Values[a] })
	return r
}

// A selector with many values selects what it says, and the engine finds the pods that it selects, whether the policy
// or the pod comes first.
func TestSelectorOfManyValuesSelectsTheSame(t *testing.T) {
	seed := seedOf(t)
	for n := range 300 {
		d := newDice(seed, n)
		s := &metav1.LabelSelector{
			MatchExpressions: several(d, 1, 3, func() metav1.LabelSelectorRequirement {
				return d.manyOf(pick(d, "a", "b"))
			}),
		}
		if d.chance(50) {
			s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{
				Key:      "a",
				Operator: metav1.LabelSelectorOpExists,
			})
		}
		plain, err := metav1.LabelSelectorAsSelector(s)
		if err != nil {
			t.Fatal(err)
		}
		selector := newSelector("x", nil, plain)
		if selector.key != "x||"+plain.String() {
			t.Fatalf("the key is %q", selector.key)
		}
		e := NewEngine(Config{})
		var want []string
		pods := make(map[string]labels.Set)
		for k := range 20 {
			set := labels.Set{"a": fmt.Sprint(d.IntN(4 * maxPlaces)), "b": fmt.Sprint(d.IntN(4 * maxPlaces))}
			if d.chance(30) {
				delete(set, pick(d, "a", "b"))
			}
			name := fmt.Sprint("p", k)
			pods[name] = set
			if plain.Matches(set) {
				want = append(want, name)
			}
			if got := selector.Pods.Matches(set); got != plain.Matches(set) {
				t.Fatalf("%s selects %v: %t", plain, set, got)
			}
		}
		slices.Sort(want)
		isPolicyFirst := d.chance(50)
		if isPolicyFirst {
			e.SetPolicy(Policy{Ref: Ref{Network, "x", "p"}, Subject: selector})
		}
		for name, set := range pods {
			e.SetPod(Pod{ID: ID{"x", name}, Labels: set})
		}
		if !isPolicyFirst {
			e.SetPolicy(Policy{Ref: Ref{Network, "x", "p"}, Subject: selector})
		}
		var got []string
		for member := range e.membership.groups[selector.key].members {
			got = append(got, member.Name)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Fatalf("%s: selected are %v, want %v of %v", plain, got, want, maps.Collect(maps.All(pods)))
		}
		e.DeletePolicy(Ref{Network, "x", "p"})
		if len(e.membership.index.inNamespace) > 0 {
			t.Fatal("the selector remains in the index")
		}
	}
}

// The index has few places for a selector, and its values are looked up: both are done while ADDs wait, for all pods.
func TestSelectorOfManyValuesIsIndexedByItsKey(t *testing.T) {
	r := metav1.LabelSelectorRequirement{Key: "app", Operator: metav1.LabelSelectorOpIn}
	for n := range 10_000 {
		r.Values = append(r.Values, fmt.Sprint(n))
	}
	for _, r.Operator = range []metav1.LabelSelectorOperator{metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn} {
		plain, err := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{r},
		})
		if err != nil {
			t.Fatal(err)
		}
		s := newSelector("", plain, plain)
		if n := len(places(s.Pods)); n > 1 {
			t.Errorf("%s: %d places", r.Operator, n)
		}
		for what, of := range map[string]labels.Selector{"pods": s.Pods, "namespaces": s.Namespaces} {
			if q, is := of.(*quickSelector); !is || len(q.few) > 0 {
				t.Errorf("%s: the values are compared one by one with %s", r.Operator, what)
			}
		}
	}
}

// A selector with many requirements counts as several.
func TestRequirementsOfPeersCountAsSelectors(t *testing.T) {
	peers := func(selectors, requirements int) Policy {
		p := Policy{Ref: Ref{Network, "a", "p"}, Subject: newSelector("a", nil, labels.Everything())}
		var c Clause
		for n := range selectors {
			s := &metav1.LabelSelector{}
			for k := range requirements {
				s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{
					Key: fmt.Sprintf("k%d-%d", n, k), Operator: metav1.LabelSelectorOpDoesNotExist,
				})
			}
			pods, err := metav1.LabelSelectorAsSelector(s)
			if err != nil {
				t.Fatal(err)
			}
			of := newSelector("", labels.Everything(), pods)
			c.Peers = append(c.Peers, Peer{Pods: &of})
		}
		p.Rules[Ingress] = []Clause{c}
		return p
	}
	for _, tt := range []struct {
		selectors, requirements int
		isOver                  bool
	}{{maxSelectors, 1, false}, {maxSelectors, requirementsOfWeight, false},
		{maxSelectors, requirementsOfWeight + 1, true}, {maxSelectors / 4, maxRequirements, false}} {
		if is := newPolicyState(peers(tt.selectors, tt.requirements)); is.hasTooManySelectors() != tt.isOver {
			t.Errorf("%d selectors of %d requirements count as %d", tt.selectors, tt.requirements, is.selectors)
		}
	}
}
