package cluster

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/ipnet/ipam"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/blocks"
	"github.com/weftnet/weft/k8s/blocks/blockstest"
)

var waitedFor = []blocks.PoolCIDR{
	{Network: "blue", Prefix: netip.MustParsePrefix("10.1.0.0/24"), Bits: 26, OnDemand: true},
}

// refusing is the backend of an API server that refuses requests until it is told to answer.
type refusing struct {
	*blockstest.Store
	until time.Time
}

var errOverloaded = errors.New("the API server is overloaded")

func (r refusing) Create(ctx context.Context, b *v1.IPBlock) (*v1.IPBlock, error) {
	if time.Now().Before(r.until) {
		return nil, errOverloaded
	}
	return r.Store.Create(ctx, b)
}

// exhaustedStore has all blocks of the pool, for other nodes.
func exhaustedStore() blockstest.Backend {
	store := blockstest.NewStore()
	for _, cidr := range []v1.CIDR{"10.1.0.0/26", "10.1.0.64/26", "10.1.0.128/26", "10.1.0.192/26"} {
		store.Put(v1.IPBlock{
			ObjectMeta: metav1.ObjectMeta{Name: blocks.Name("blue", cidr.Prefix())},
			Spec:       v1.IPBlockSpec{CIDR: cidr, Network: "blue", Node: "n2"},
		})
	}
	return store
}

// waitsWith runs the keeper of a node with a backend, in a bubble of synctest.
func waitsWith(t *testing.T, backend blockstest.Backend) blockWaits {
	t.Helper()
	local := &blockstest.Node{Name: "n1", Judge: blockstest.NewJudge(), Now: time.Now, Rest: 30 * time.Second}
	keeper, err := blocks.New(blocks.Config{
		Node: "n1", Store: backend, Local: local,
		Owner: func() string { return "uid of n1" },
		Watch: blockstest.Watch{},
		Pools: func() ([]blocks.PoolCIDR, bool) { return waitedFor, true },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- keeper.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	return blockWaits{keeper: keeper, failure: func() error { return nil }}
}

// TestWaitForABlock waits as an ADD does whose configured wait is 15 s.
func TestWaitForABlock(t *testing.T) {
	const configured = 15 * time.Second
	const refused = 2 * time.Second
	const longestPause = 1500 * time.Millisecond // between two claims: a second, and half of it at random
	away := func() error { return errors.New("the API server does not answer") }
	for name, tt := range map[string]struct {
		backend  func() blockstest.Backend
		failure  func() error
		coolDown time.Duration
		least    time.Duration
		most     time.Duration
		fails    bool
	}{
		"in an API server that hangs, ends as configured": {least: configured, most: configured, fails: true},
		"in an API server that is known to be away, ends after three seconds": {
			failure: away, least: awayWait, most: awayWait, fails: true,
		},
		"ends when the first cooling address is free": {
			coolDown: 5 * time.Second, least: 5 * time.Second, most: 5 * time.Second,
		},
		"ends when the first cooling address is free, although no block is left": {
			backend: exhaustedStore, coolDown: 5 * time.Second, least: 5 * time.Second, most: 5 * time.Second,
		},
		"ends at once if no block is left and addresses cool for longer": {
			backend: exhaustedStore, coolDown: time.Minute, fails: true,
		},
		"does not wait for an address that cools for longer": {
			coolDown: time.Minute, least: configured, most: configured, fails: true,
		},
		"survives refused requests, also while an address cools": {
			backend: func() blockstest.Backend {
				return refusing{blockstest.NewStore(), time.Now().Add(refused)}
			},
			coolDown: time.Minute, least: refused, most: refused + longestPause,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var backend blockstest.Backend = blockstest.NewHung()
				if tt.backend != nil {
					backend = tt.backend()
				}
				w := waitsWith(t, backend)
				if tt.failure != nil {
					w.failure = tt.failure
				}
				exhausted := ipam.ErrExhausted{Pool: "blue", NoBlock: tt.coolDown == 0}
				if tt.coolDown > 0 {
					exhausted.Cooling = 1
					exhausted.NextFree = time.Now().Add(tt.coolDown)
				}
				began := time.Now()
				add, cancel := context.WithTimeout(t.Context(), configured)
				defer cancel()
				ctx, end := w.bounded(add)
				defer end()
				err := w.need(ctx, waitedFor, exhausted)
				took := time.Since(began)
				if took < tt.least || took > tt.most || (err != nil) != tt.fails {
					t.Errorf("it took %s with error %v, want %s to %s, failed %t", took, err, tt.least, tt.most, tt.fails)
				}
			})
		})
	}
}
