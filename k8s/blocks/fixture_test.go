package blocks_test

import (
	"context"
	"errors"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weftnet/weft/internal/netaddr"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/blocks"
	"github.com/weftnet/weft/k8s/blocks/blockstest"
)

// lab is a cluster whose API server is a store in memory.
type lab struct {
	t     *testing.T
	store *blockstest.Store
	judge *blockstest.Judge
	now   time.Time
	pools []blocks.PoolCIDR
	marks blocks.Marks

	unknown bool // what is not in pools may be there
}

func newLab(t *testing.T, pools ...blocks.PoolCIDR) *lab {
	return &lab{
		t:     t,
		store: blockstest.NewStore(),
		judge: blockstest.NewJudge(),
		now:   time.Unix(1_700_000_000, 0),
		pools: pools,
		marks: blocks.DefaultMarks(),
	}
}

// node is a node with its keeper.
type node struct {
	*blocks.Keeper
	local *blockstest.Node
	uid   string
	away  bool // its watch has not seen anything yet
	kept  []v1.IPBlock
	taken func(b netaddr.Block, by string) bool

	hangs atomic.Pointer[blockstest.Hung] // instead of the API server

	cut  bool // from the API server, of which the node then knows what it saw last:
	seen []*v1.IPBlock
	said string // its uid

	keepFails bool
}

func (l *lab) node(name string) *node {
	return l.restart(&node{
		local: &blockstest.Node{Name: name, Judge: l.judge, Now: l.clock, Rest: 30 * time.Second},
		uid:   "uid of " + name,
	})
}

func (l *lab) clock() time.Time { return l.now }

// restart gives the node a new keeper with the known blocks.
func (l *lab) restart(n *node, known ...v1.IPBlock) *node {
	l.t.Helper()
	k, err := blocks.New(blocks.Config{
		Node: n.local.Name, Store: wire{l.store, n}, Local: n.local, Taken: n.taken,
		Owner: func() string {
			if !n.cut {
				n.said = n.uid
			}
			return n.said
		},
		Watch: blockstest.Watch{
			Own: func() ([]*v1.IPBlock, bool) {
				if n.away {
					return nil, false
				}
				if !n.cut {
					n.seen = l.store.Of(n.local.Name)
				}
				return n.seen, true
			},
			Foreign: func(name string) *v1.IPBlock {
				b, _ := l.store.Get(context.Background(), name)
				if n.cut || string(b.Spec.Node) == n.local.Name {
					return nil
				}
				return b
			},
		},
		Pools: func() ([]blocks.PoolCIDR, bool) { return l.pools, !l.unknown },
		Marks: func() blocks.Marks { return l.marks },
		Now:   l.clock,
		Durable: blocks.Durable{Known: known, Keep: func(b []v1.IPBlock) error {
			if n.keepFails {
				return errors.New("no space left")
			}
			n.kept = b
			return nil
		}},
	})
	if err != nil {
		l.t.Fatal(err)
	}
	n.Keeper = k
	return n
}

// wire is the connection of a node to the store.
type wire struct {
	*blockstest.Store
	of *node
}

var errCut = errors.New("no route to host")

func (w wire) Get(ctx context.Context, name string) (*v1.IPBlock, error) {
	if hung := w.of.hangs.Load(); hung != nil {
		return hung.Get(ctx, name)
	}
	if w.of.cut {
		return nil, errCut
	}
	return w.Store.Get(ctx, name)
}

func (w wire) List(ctx context.Context, p blocks.PoolCIDR, fresh bool) ([]v1.IPBlock, error) {
	if w.of.cut {
		return nil, errCut
	}
	return w.Store.List(ctx, p, fresh)
}

func (w wire) Create(ctx context.Context, b *v1.IPBlock) (*v1.IPBlock, error) {
	if w.of.cut {
		return nil, errCut
	}
	return w.Store.Create(ctx, b)
}

func (w wire) Update(ctx context.Context, b *v1.IPBlock) (*v1.IPBlock, error) {
	if w.of.cut {
		return nil, errCut
	}
	return w.Store.Update(ctx, b)
}

func (w wire) Delete(ctx context.Context, b *v1.IPBlock) error {
	if w.of.cut {
		return errCut
	}
	return w.Store.Delete(ctx, b)
}

func (l *lab) step(n *node) {
	l.t.Helper()
	if err := n.Step(l.t.Context()); err != nil {
		l.t.Fatalf("%s: %v", n.local.Name, err)
	}
}

// lease gives count pods of the node an address each.
func (l *lab) lease(n *node, count int) []netip.Addr {
	l.t.Helper()
	var leased []netip.Addr
	for range count {
		a := n.local.Lease()
		if !a.IsValid() {
			l.t.Fatalf("%s has no address for its pod number %d", n.local.Name, len(leased)+1)
		}
		leased = append(leased, a)
	}
	return leased
}

// end releases the addresses of pods.
func (n *node) end(pods []netip.Addr) {
	for _, a := range pods {
		n.local.Release(a)
	}
}

// idles lets time pass, and fails the test if the node claims or releases a block meanwhile.
func (l *lab) idles(n *node) {
	l.t.Helper()
	calls := l.store.Calls()[""]
	for range 100 {
		l.now = l.now.Add(time.Minute)
		l.step(n)
	}
	if l.store.Calls()[""] != calls {
		l.t.Error("an idle node claims and releases")
	}
}

// blocksOf counts the blocks of a node in the store.
func (l *lab) blocksOf(n *node) int {
	return len(l.store.Of(n.local.Name))
}

func (l *lab) want(n *node, count int, when string) {
	l.t.Helper()
	if got := l.blocksOf(n); got != count {
		l.t.Fatalf("%s: %s has %d blocks, want %d", when, n.local.Name, got, count)
	}
}

// sound fails the test if two nodes can allocate one address, or the store is invalid.
func (l *lab) sound(nodes ...*node) {
	l.t.Helper()
	for _, fault := range l.judge.Faults() {
		l.t.Error(fault)
	}
	there := blocks.Nodes{}
	for _, n := range nodes {
		there[n.local.Name] = n.uid
	}
	for _, v := range blocks.Check(l.pools, l.store.All(), there) {
		l.t.Error(v)
	}
}

func pool(prefix string, bits int) blocks.PoolCIDR {
	return blocks.PoolCIDR{Name: "pods", Prefix: netip.MustParsePrefix(prefix), Bits: bits}
}
