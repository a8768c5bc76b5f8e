package policies

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/weftnet/weft/policy"
)

// over lists the policies without room.
func (r *room) over() []policy.Ref {
	var list []policy.Ref
	for id, is := range r.of {
		if is.isOver {
			list = append(list, id)
		}
	}
	slices.SortFunc(list, func(a, b policy.Ref) int { return compareSpaces(&space{Ref: a}, &space{Ref: b}) })
	return list
}

// All nodes leave the same policies out, in whatever order they learn of them, and each change of that is reported
// once.
func TestWhichPoliciesHaveRoomDependsOnThemAlone(t *testing.T) {
	for seed := range uint64(300) {
		d := rand.New(rand.NewPCG(seed, 1))
		r := newRoom(100)
		known := make(map[policy.Ref]bool) // as the caller knows, whether they are over
		want := make(map[policy.Ref]int)
		for range 60 {
			id := policy.Ref{Kind: policy.Network, Namespace: "a", Name: fmt.Sprint(d.IntN(12))}
			if d.IntN(2) == 0 {
				id.Kind = policy.Multi
			}
			parts := d.IntN(4) * d.IntN(30)
			changed := r.set(id, parts)
			want[id] = parts
			known[id] = r.isOver(id)
			if parts == 0 {
				delete(want, id)
				delete(known, id)
			}
			for _, other := range changed {
				if other == id || known[other] == r.isOver(other) {
					t.Fatalf("seed %d: %s is reported without a change", seed, other)
				}
				known[other] = r.isOver(other)
			}
			for other, is := range known {
				if r.isOver(other) != is {
					t.Fatalf("seed %d: the change of %s is not reported", seed, other)
				}
			}
		}
		again := newRoom(100)
		for _, id := range slices.Collect(maps.Keys(want)) { // in random order
			again.set(id, want[id])
		}
		if !slices.Equal(r.over(), again.over()) {
			t.Fatalf("seed %d: %v have no room, and in another order %v", seed, r.over(), again.over())
		}
		sum := 0
		for id, parts := range want {
			if !r.isOver(id) {
				sum += parts
			}
		}
		if sum > r.limit {
			t.Fatalf("seed %d: %d parts have room", seed, sum)
		}
		for id := range want {
			r.set(id, 0)
		}
		if len(r.in)+len(r.of) > 0 {
			t.Fatalf("seed %d: something remains of no policies", seed)
		}
	}
}

func TestALargePolicyTakesNoRoomOfSmallOnes(t *testing.T) {
	r := newRoom(100)
	ref := func(namespace, name string) policy.Ref {
		return policy.Ref{Kind: policy.Network, Namespace: namespace, Name: name}
	}
	r.set(ref("a", "large"), 90)
	r.set(ref("b", "large"), 90)
	if changed := r.set(ref("a", "small"), 20); len(changed) != 1 || changed[0] != ref("a", "large") {
		t.Errorf("the small policy changes %v", changed)
	}
	if r.isOver(ref("a", "small")) || !r.isOver(ref("a", "large")) || r.isOver(ref("b", "large")) {
		t.Errorf("without room are %v", r.over())
	}
	if changed := r.set(ref("a", "small"), 0); len(changed) != 1 || r.isOver(ref("a", "large")) {
		t.Error("the large policy has no room although it is alone")
	}
}
