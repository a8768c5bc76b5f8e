package blocks_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/k8s/blocks"
	"github.com/weftnet/weft/k8s/blocks/blockstest"
)

var (
	fleetSeed  = flag.Uint64("fleet.seed", 0, "of TestNoAddressIsEverTwoPodsOfAFleet; random by default")
	fleetSteps = flag.Int("fleet.steps", 20_000, "of TestNoAddressIsEverTwoPodsOfAFleet")
)

// fleet is a cluster of machines that join, leave and return while their pods run on. Nodes are cut off from the API
// server, and restart.
type fleet struct {
	*lab
	dice      *rand.Rand
	machines  []*machine
	collector *blocks.Collector
	collected time.Time
	holder    map[netip.Addr]*machine // of addresses, by the pods that were given them last
	// pods with an address of a pod on a machine that was away for longer than the grace
	excused  int
	isolated int // pods
	statics  int // pods that got the static address that they asked for
	moved    int // of them, from another node's block
}

type machine struct {
	*node
	missing time.Time // when the controller first saw no Node
	lapsed  bool      // its Node was gone for the grace, and it has not seen since what it still has
	pods    map[netip.Addr]bool

	isolated map[netip.Addr]bool // of pods

	static *blocks.Static // that it claims
}

// TestNoAddressIsEverTwoPodsOfAFleet simulates a cluster of 50 nodes. The seed replays a run.
func TestNoAddressIsEverTwoPodsOfAFleet(t *testing.T) {
	seed := *fleetSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-fleet.seed %d -fleet.steps %d", seed, *fleetSteps)
	f := &fleet{
		lab: newLab(t, pool("10.1.0.0/22", 28), blocks.PoolCIDR{
			Name:   "more",
			Prefix: netip.MustParsePrefix("10.2.0.0/24"),
			Bits:   28,
		}),
		dice: rand.New(rand.NewPCG(seed, 0)), holder: make(map[netip.Addr]*machine),
	}
	f.marks = blocks.Marks{Low: 4, High: 24, Grace: time.Minute, MaxBlocks: 4}
	for i := range 50 {
		f.machines = append(f.machines, f.machine(fmt.Sprintf("n%02d", i)))
	}
	f.collector = &blocks.Collector{
		Store: f.store, Pools: func() []blocks.PoolCIDR { return f.pools }, Now: f.clock,
		NodeUID: func(_ context.Context, name string) (string, error) { return f.named(name).uid, nil },
	}
	actions := slices.Concat(
		slices.Repeat([]func(*machine){f.look}, 12), slices.Repeat([]func(*machine){f.start}, 8),
		slices.Repeat([]func(*machine){f.end}, 6),
		slices.Repeat([]func(*machine){f.heal}, 2), slices.Repeat([]func(*machine){f.startStatic}, 12),
		[]func(*machine){f.leave, f.comeBack, f.comeBack, f.cutOff, f.crash, f.removePool},
	)
	for range *fleetSteps {
		f.pass(time.Duration(f.dice.IntN(2000)) * time.Millisecond)
		if f.dice.IntN(2000) == 0 {
			f.pass(20 * time.Minute)
		}
		actions[f.dice.IntN(len(actions))](f.machines[f.dice.IntN(len(f.machines))])
	}
	f.settle()
	if f.statics < 100 || f.moved < 20 {
		t.Errorf("%d pods got a static address, %d of them one of another node's block", f.statics, f.moved)
	}
	t.Logf("%d pods got a static address, %d of them one of another node's block", f.statics, f.moved)
	t.Logf("%d pods had to be isolated, %d had an address of a pod on a machine that was away for too long", f.isolated,
		f.excused)
}

func (f *fleet) machine(name string) *machine {
	m := &machine{pods: make(map[netip.Addr]bool), isolated: make(map[netip.Addr]bool)}
	m.node = &node{
		local: &blockstest.Node{Name: name, Judge: blockstest.NewJudge(), Now: f.clock, Rest: 30 * time.Second},
		uid:   "first",
		taken: func(b netaddr.Block, _ string) bool { f.isolate(m, b); return true },
	}
	f.restart(m.node)
	return m
}

func (f *fleet) named(name string) *machine {
	return f.machines[slices.IndexFunc(f.machines, func(m *machine) bool { return m.local.Name == name })]
}

// pass lets time pass while the controller searches for leaks. To the controller a node that was back only between two
// polls was away.
func (f *fleet) pass(d time.Duration) {
	f.now = f.now.Add(d)
	if f.now.Sub(f.collected) < time.Minute {
		return
	}
	f.collected = f.now
	for _, m := range f.machines {
		switch {
		case m.uid != "":
			m.missing = time.Time{}
		case m.missing.IsZero():
			m.missing = f.now
		}
		m.lapsed = m.lapsed || !m.missing.IsZero() && f.now.Sub(m.missing) >= blocks.DefaultLeakGrace
	}
	_, _ = f.collector.Collect(f.t.Context()) // conflicts are for the next look
}

// look is a step of the node's keeper. It may fail because of the cut connection or a pool without blocks.
func (f *fleet) look(m *machine) {
	_ = m.Step(f.t.Context())
	if !m.cut && m.uid != "" {
		m.lapsed = false
	}
}

// start gives some pods an address. Kubernetes starts them on nodes that it has and that reach it; other nodes recreate
// sandboxes of their own pods.
func (f *fleet) start(m *machine) {
	if (m.cut || m.uid == "") && f.dice.IntN(10) > 0 {
		return
	}
	for range 1 + f.dice.IntN(4) {
		a := m.local.Lease()
		if !a.IsValid() {
			return
		}
		f.give(m, a)
	}
}

// give gives a pod of the machine an address.
func (f *fleet) give(m *machine, a netip.Addr) {
	other := f.holder[a]
	switch {
	case other == nil:
	case other.lapsed || m.lapsed:
		f.excused++
	default:
		f.t.Fatalf("%s gives %s, which a pod of %s has", m.local.Name, a, other.local.Name)
	}
	m.pods[a] = true
	if other == nil || !m.lapsed {
		f.holder[a] = m
	}
}

// startStatic starts a pod with a static address, sometimes one that a pod on another node has or had a moment ago.
func (f *fleet) startStatic(m *machine) {
	if m.static == nil {
		p := f.pools[f.dice.IntN(len(f.pools))]
		a := p.Block(f.dice.Uint64N(p.Blocks())).Addr()
		for range f.dice.IntN(4) {
			a = a.Next()
		}
		m.static = &blocks.Static{Pool: p, Address: a, Namespace: "shop", Pod: "web"}
	}
	s := m.static
	for range 6 {
		claimed, err := m.TryClaim(f.t.Context(), s)
		if claimed || err != nil {
			m.static = nil
		}
		if claimed && err == nil && m.local.LeaseThis("", s.Address) {
			f.statics++
			block, _ := s.Address.Prefix(s.Pool.Bits)
			if b, err := f.store.Get(f.t.Context(), blocks.Name("", block)); err == nil &&
				string(b.Spec.Node) != m.local.Name {
				f.moved++
			}
			f.give(m, s.Address)
		}
		if m.static == nil {
			return
		}
		f.look(f.machines[f.dice.IntN(len(f.machines))]) // mostly not the one that has to act
		block, _ := s.Address.Prefix(s.Pool.Bits)
		if b, err := f.store.Get(f.t.Context(), blocks.Name("", block)); err == nil && b.Spec.Node != "" &&
			f.dice.IntN(2) == 0 {
			f.look(f.named(string(b.Spec.Node)))
		}
	}
	if f.dice.IntN(2) == 0 {
		m.static = nil // its pod is gone; the request stays
	}
}

func (f *fleet) end(m *machine) {
	for _, a := range m.sorted() {
		if f.dice.IntN(3) == 0 {
			f.remove(m, a)
		}
	}
}

func (m *machine) sorted() []netip.Addr {
	return slices.SortedFunc(maps.Keys(m.pods), netip.Addr.Compare)
}

func (f *fleet) remove(m *machine, a netip.Addr) {
	m.local.Release(a)
	delete(m.pods, a)
	delete(m.isolated, a)
	if f.holder[a] == m {
		delete(f.holder, a)
	}
}

// isolate isolates pods of the machine.
func (f *fleet) isolate(m *machine, b netaddr.Block) {
	for a := range m.pods {
		if !b.Prefix.Contains(a) || m.isolated[a] {
			continue
		}
		m.isolated[a] = true
		f.isolated++
		if f.holder[a] == m {
			delete(f.holder, a)
		}
	}
}

// leave deletes the Node; the machine and its pods continue.
func (f *fleet) leave(m *machine) {
	m.uid = ""
}

func (f *fleet) comeBack(m *machine) {
	if m.uid == "" {
		m.uid = fmt.Sprint("uid ", f.now)
	}
}

func (f *fleet) cutOff(m *machine) { m.cut = true }

func (f *fleet) heal(m *machine) { m.cut = false }

func (f *fleet) crash(m *machine) {
	m.local.Crash()
	f.restart(m.node, m.kept...)
}

// removePool creates and deletes a pool.
func (f *fleet) removePool(*machine) {
	if len(f.pools) == 2 {
		f.pools = f.pools[:1]
	} else {
		f.pools = append(f.pools[:1:1], blocks.PoolCIDR{
			Name:   "more",
			Prefix: netip.MustParsePrefix("10.2.0.0/24"),
			Bits:   28,
		})
	}
}

// settle brings all nodes back: then no two pods with a network have the same address.
func (f *fleet) settle() {
	for range 3 {
		for _, m := range f.machines {
			f.comeBack(m)
			f.heal(m)
			f.look(m)
		}
		f.pass(time.Minute)
	}
	has := make(map[netip.Addr]*machine)
	for _, m := range f.machines {
		for a := range m.pods {
			if m.isolated[a] {
				continue
			}
			if other := has[a]; other != nil {
				f.t.Errorf("%s and %s have pods with %s", m.local.Name, other.local.Name, a)
			}
			has[a] = m
		}
	}
	nodes := blocks.Nodes{}
	for _, m := range f.machines {
		nodes[m.local.Name] = m.uid
	}
	for _, v := range blocks.Check(f.pools, f.store.All(), nodes) {
		if v.Rule != blocks.RulePool { // of a pool that was removed
			f.t.Error(v)
		}
	}
}
