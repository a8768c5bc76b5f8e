package kvscheduler_test

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/kvscheduler/kvschedulertest"
)

// things are the refs of generated worlds. A thing may need only those before it in the present order.
const things = 14

func thingRef(i int) ref {
	return ref{Kind: kvscheduler.Kind("abc"[i%3 : i%3+1]), Name: string(rune('a' + i))}
}

// change draws a change of the desired state: some things set, some deleted, and the whole of it under a new order of
// dependencies now and then. It returns what it sets and what is desired then.
func (w *world) change(rt *rapid.T, order []int) ([]kvscheduler.Object, map[ref]thing) {
	after := maps.Clone(w.desired)
	touched := make(map[ref]bool)
	if rapid.IntRange(0, 4).Draw(rt, "reorder") == 0 {
		shuffled := rapid.Permutation(order).Draw(rt, "order")
		copy(order, shuffled)
		for r := range after { // older dependencies could contradict the new order
			touched[r] = true
		}
		clear(after)
	}
	for pos, i := range order {
		r := thingRef(i)
		switch rapid.IntRange(0, 5).Draw(rt, "what") {
		case 0:
			delete(after, r)
			touched[r] = true
		case 1, 2:
			v := drawThing(rt, order[:pos])
			if w.unread {
				v.Unread = drawUnread(rt, order[:pos])
			}
			after[r] = v
			touched[r] = true
		case 3:
			if v, wanted := after[r]; wanted && w.unread {
				v.Unread = drawUnread(rt, order[:pos])
				after[r] = v
				touched[r] = true
			}
		}
	}
	var set []kvscheduler.Object
	for _, r := range slices.SortedFunc(maps.Keys(touched), func(a, b ref) int {
		return strings.Compare(a.String(), b.String())
	}) {
		if v, want := after[r]; want {
			set = append(set, kvschedulertest.KindOf[thing](r.Kind).Put(r.Name, v))
		} else {
			set = append(set, kvschedulertest.KindOf[thing](r.Kind).Del(r.Name))
		}
	}
	return set, after
}

func drawThing(rt *rapid.T, before []int) thing {
	v := thing{
		Version: rapid.IntRange(0, 3).Draw(rt, "version"),
		Type:    rapid.IntRange(0, 1).Draw(rt, "type"),
		Secret:  rapid.SampledFrom([]string{"", "", "s1", "s2"}).Draw(rt, "secret"),
		Bad:     rapid.IntRange(0, 14).Draw(rt, "bad") == 0,
	}
	var needs, follows []string
	for _, j := range before {
		switch rapid.IntRange(0, 9).Draw(rt, "dep") {
		case 0, 1:
			needs = append(needs, thingRef(j).String())
		case 2:
			follows = append(follows, thingRef(j).String())
		}
	}
	v.Needs = strings.Join(needs, " ")
	v.Follows = strings.Join(follows, " ")
	return v
}

// drawUnread draws the fields that Equal ignores.
func drawUnread(rt *rapid.T, before []int) kvschedulertest.Unread {
	var behind []string
	for _, j := range before {
		if rapid.IntRange(0, 5).Draw(rt, "behind") == 0 {
			behind = append(behind, thingRef(j).String())
		}
	}
	return kvschedulertest.Unread{Behind: strings.Join(behind, " ")}
}

// withBuckets lets things of kind a be members of buckets, and things of kinds b and c need some member.
func withBuckets(rt *rapid.T, set []kvscheduler.Object, after map[ref]thing, unread bool) {
	for i, o := range set {
		v, ok := o.Value.(thing)
		if !ok {
			continue
		}
		bucket := fmt.Sprintf("a%d", rapid.IntRange(0, 1).Draw(rt, "bucket"))
		if o.Ref.Kind == "a" {
			v.Bucket = bucket
			v.Needs = ""
			v.Follows = ""
			v.Behind = "" // members need nothing: no cycle through a bucket
			if unread {
				// the machine cannot tell who is near a shelf
				v.Shelf = rapid.SampledFrom([]string{"", "a8", "a9"}).Draw(rt, "shelf")
			}
		} else if unread && rapid.IntRange(0, 2).Draw(rt, "behind any") == 0 {
			v.BehindAny = rapid.SampledFrom([]string{bucket, "a8", "a9"}).Draw(rt, "behind which")
		} else if rapid.Bool().Draw(rt, "near") {
			v.Near = bucket
		}
		after[o.Ref] = v
		set[i] = kvschedulertest.KindOf[thing](o.Ref.Kind).Put(o.Ref.Name, v)
	}
}

func firstOrder() []int {
	order := make([]int, things)
	for i := range order {
		order[i] = i
	}
	return order
}

func diff(got, want map[ref]thing) string {
	var out []string
	for r, v := range want {
		if g, ok := got[r]; !ok {
			out = append(out, fmt.Sprintf("%s is missing (%+v)", r, v))
		} else if g.Read() != v.Read() {
			out = append(out, fmt.Sprintf("%s is %+v, want %+v", r, g, v))
		}
	}
	for r := range got {
		if _, ok := want[r]; !ok {
			out = append(out, fmt.Sprintf("%s is there", r))
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

func mapsKeys(m map[ref]thing) iter.Seq[ref] { return maps.Keys(m) }

func compareRefs(a, b ref) int { return strings.Compare(a.String(), b.String()) }
