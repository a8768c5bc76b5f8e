package blocks_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weftnet/weft/k8s/blocks"
	"github.com/weftnet/weft/k8s/blocks/blockstest"
)

// world is a small cluster with random events: pods start and end; a write conflicts, fails, or succeeds late or
// without an answer; nodes crash and watches stop.
type world struct {
	*lab
	nodes []*node
	pods  map[*node][]netip.Addr

	statics map[*node]*blocks.Static // that nodes claim
}

// TestNoAddressIsEverTwoNodes is the promise of the package.
func TestNoAddressIsEverTwoNodes(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		p := blocks.PoolCIDR{
			Name:      "pods",
			Prefix:    netip.MustParsePrefix("10.1.0.0/27"),
			Bits:      29,
			Borrowing: rapid.Bool().Draw(r, "borrowing"),
		}
		w := &world{lab: newLab(t, p), pods: make(map[*node][]netip.Addr), statics: make(map[*node]*blocks.Static)}
		w.marks = blocks.Marks{Low: 2, High: 4, Grace: 20 * time.Second, MaxBlocks: 3}
		for _, name := range []string{"n1", "n2", "n3"} {
			n := w.node(name)
			n.local.Rest = 5 * time.Second
			w.nodes = append(w.nodes, n)
		}
		w.fault(r)
		// Most events are ordinary, so that the world reaches states in which the others matter.
		actions := slices.Concat(
			slices.Repeat([]func(*rapid.T){w.step}, 10), slices.Repeat([]func(*rapid.T){w.start}, 6),
			slices.Repeat([]func(*rapid.T){w.end}, 6), slices.Repeat([]func(*rapid.T){w.wait}, 5),
			slices.Repeat([]func(*rapid.T){w.static}, 6), slices.Repeat([]func(*rapid.T){w.fault}, 3),
			slices.Repeat([]func(*rapid.T){w.arrive}, 2),
			[]func(*rapid.T){w.borrowing, w.close, w.watch, w.crash},
		)
		for _, i := range rapid.SliceOfN(rapid.IntRange(0, len(actions)-1), 0, 120).Draw(r, "actions") {
			actions[i](r)
			w.check(r)
		}
		w.settle(r)
	})
}

func (w *world) step(r *rapid.T) { _ = w.any(r).Step(w.t.Context()) } // its errors are the faults

func (w *world) wait(r *rapid.T) {
	w.now = w.now.Add(time.Duration(rapid.IntRange(1, 40).Draw(r, "seconds")) * time.Second)
}

// fault decides about the next writes; later ones succeed.
func (w *world) fault(r *rapid.T) {
	faults := rapid.SliceOfN(rapid.SampledFrom([]blockstest.Fault{
		blockstest.None, blockstest.Conflict, blockstest.Unavailable, blockstest.Lost, blockstest.Late,
	}), 0, 4).Draw(r, "faults")
	w.store.Fault = func(string, string) blockstest.Fault {
		if len(faults) == 0 {
			return blockstest.None
		}
		next := faults[0]
		faults = faults[1:]
		return next
	}
}

func (w *world) arrive(*rapid.T) { w.store.Arrive() }

func (w *world) borrowing(r *rapid.T) { w.pools[0].Borrowing = rapid.Bool().Draw(r, "borrowing") }

func (w *world) close(r *rapid.T) { w.pools[0].Closed = rapid.Bool().Draw(r, "closed") }

func (w *world) watch(r *rapid.T) { w.any(r).away = rapid.Bool().Draw(r, "away") }

func (w *world) crash(r *rapid.T) {
	n := w.any(r)
	n.local.Crash()
	w.restart(n, n.kept...)
}

func (w *world) any(r *rapid.T) *node { return rapid.SampledFrom(w.nodes).Draw(r, "node") }

func (w *world) start(r *rapid.T) {
	n := w.any(r)
	for range rapid.IntRange(1, 8).Draw(r, "pods") {
		a := n.local.Lease()
		if !a.IsValid() {
			return
		}
		w.give(r, n, a)
	}
}

func (w *world) give(r *rapid.T, n *node, a netip.Addr) {
	for other, pods := range w.pods {
		if slices.Contains(pods, a) {
			r.Fatalf("%s gives %s, which a pod of %s has", n.local.Name, a, other.local.Name)
		}
	}
	w.pods[n] = append(w.pods[n], a)
}

// static makes a node try once to claim a static address, of a waiting pod or another one.
func (w *world) static(r *rapid.T) {
	n := w.any(r)
	s := w.statics[n]
	if s == nil {
		a := w.pools[0].Prefix.Addr()
		for range rapid.IntRange(0, 31).Draw(r, "address") {
			a = a.Next()
		}
		s = &blocks.Static{Pool: w.pools[0], Address: a}
		w.statics[n] = s
	}
	claimed, err := n.TryClaim(w.t.Context(), s)
	if err == nil && !claimed && rapid.IntRange(0, 4).Draw(r, "patience") > 0 {
		return
	}
	delete(w.statics, n)
	if claimed && err == nil && n.local.LeaseThis("", s.Address) {
		w.give(r, n, s.Address)
	}
}

func (w *world) end(r *rapid.T) {
	n := w.any(r)
	for range min(rapid.IntRange(1, 8).Draw(r, "pods"), len(w.pods[n])) {
		n.local.Release(w.pods[n][0])
		w.pods[n] = w.pods[n][1:]
	}
}

func (w *world) check(r *rapid.T) {
	for _, fault := range w.judge.Faults() {
		r.Fatal(fault)
	}
	there := blocks.Nodes{}
	for _, n := range w.nodes {
		there[n.local.Name] = n.uid
	}
	for _, v := range blocks.Check(w.pools, w.store.All(), there) {
		r.Fatal(v)
	}
}

// settle ends all pods and faults: then no node has more blocks than the water marks allow, and nothing is lent.
func (w *world) settle(r *rapid.T) {
	w.store.Arrive()
	w.store.Fault = nil
	w.pools[0].Borrowing = false
	w.pools[0].Closed = false
	for n, pods := range w.pods {
		n.end(pods)
	}
	for range 10 {
		w.now = w.now.Add(2 * time.Minute)
		for _, n := range w.nodes {
			n.away = false
			_ = n.Step(w.t.Context()) // may find no block yet
		}
	}
	w.check(r)
	for _, n := range w.nodes {
		if got := w.blocksOf(n); got != 1 {
			r.Fatalf("%s has %d blocks in the end, want 1", n.local.Name, got)
		}
	}
	for _, b := range w.store.All() {
		if len(b.Spec.Offered)+len(b.Spec.Borrowed) > 0 {
			r.Fatalf("block %s offers %v and lends %v in the end", b.Name, b.Spec.Offered, b.Spec.Borrowed)
		}
	}
}
