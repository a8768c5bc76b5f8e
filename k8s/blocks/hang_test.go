package blocks_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weftnet/weft/k8s/blocks"
	"github.com/weftnet/weft/k8s/blocks/blockstest"
)

// hungKeeper runs a keeper until a request of its first step hangs.
func hungKeeper(t *testing.T, p blocks.PoolCIDR) *blocks.Keeper {
	l := newLab(t, p)
	n := l.node("n1")
	store := blockstest.NewHung()
	k, err := blocks.New(blocks.Config{
		Node: "n1", Store: store, Local: n.local,
		Owner: func() string { return "uid of n1" },
		Watch: blockstest.Watch{},
		Pools: func() ([]blocks.PoolCIDR, bool) { return l.pools, true },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- k.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	<-store.Began
	return k
}

func TestStateOfTheKeeperIsReadWhileARequestHangs(t *testing.T) {
	p := pool("10.1.0.0/24", 26)
	for name, read := range map[string]func(k *blocks.Keeper){
		"Exhausted": func(k *blocks.Keeper) { k.Exhausted(p) },
		"IsFull":    func(k *blocks.Keeper) { k.IsFull(p) },
		"Blocks":    func(k *blocks.Keeper) { k.Blocks() },
	} {
		t.Run(name, func(t *testing.T) {
			k := hungKeeper(t, p)
			done := make(chan struct{})
			go func() {
				defer close(done)
				read(k)
			}()
			select {
			case <-done:
			case <-time.After(5 * time.Second): // the request hangs for longer
				t.Error("it waits for the request")
				<-done
			}
		})
	}
}

// took returns how long a call takes by the clock of the bubble.
func took(call func()) time.Duration {
	began := time.Now()
	call()
	return time.Since(began)
}

func TestWaitForABlockEndsWithItsContextWhileARequestHangs(t *testing.T) {
	p := pool("10.1.0.0/24", 26)
	wanted := &blocks.Static{Pool: p, Address: netip.MustParseAddr("10.1.0.9"), Namespace: "shop", Pod: "web-0"}
	for name, wait := range map[string]func(ctx context.Context, k *blocks.Keeper) error{
		"Need":  func(ctx context.Context, k *blocks.Keeper) error { return k.Need(ctx, p) },
		"Claim": func(ctx context.Context, k *blocks.Keeper) error { return k.Claim(ctx, *wanted) },
		"TryClaim": func(ctx context.Context, k *blocks.Keeper) error {
			_, err := k.TryClaim(ctx, wanted)
			return err
		},
		"Step": func(ctx context.Context, k *blocks.Keeper) error { return k.Step(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := hungKeeper(t, p)
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				var err error
				d := took(func() { err = wait(ctx, k) })
				if d != 3*time.Second || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("it ended after %s with error %v", d, err)
				}
			})
		})
	}
}

// The request of a claim may hang after earlier ones were answered. Then the claim also tries to withdraw what it
// requested: not for long.
func TestClaimEndsSoonAfterItsContextIfItsWithdrawalHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, pool("10.1.0.0/26", 26))
		n := l.node("n1")
		l.step(n)
		other := l.node("n2")
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		// just before the end: at the end itself the withdrawal may be faster
		time.AfterFunc(3*time.Second-time.Millisecond, func() { other.hangs.Store(blockstest.NewHung()) })
		var err error
		d := took(func() {
			err = other.Claim(ctx, blocks.Static{
				Pool: l.pools[0], Address: netip.MustParseAddr("10.1.0.9"), Pod: "web-0",
			})
		})
		if d < 5*time.Second || d > 6*time.Second || err == nil {
			t.Errorf("it ended after %s with error %v, want 3 s and 2 s for the withdrawal", d, err)
		}
	})
}
