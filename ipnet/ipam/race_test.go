package ipam_test

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet/ipam"
)

// owners records who uses an address, as seen from outside the allocator.
type owners struct{ byAddress sync.Map }

func (o *owners) take(l ipam.Lease) error {
	if other, taken := o.byAddress.LoadOrStore(l.Address, l.Holder); taken {
		return fmt.Errorf("%s was given to %s while %s had it", l.Address, l.Holder, other)
	}
	return nil
}

func (o *owners) leave(l ipam.Lease) { o.byAddress.Delete(l.Address) }

// TestConcurrentLeasesNeverShareAnAddress runs 64 goroutines that lease and release 10 000 times each, in a pool of 61
// addresses.
func TestConcurrentLeasesNeverShareAnAddress(t *testing.T) {
	const (
		workers = 64
		rounds  = 10_000
	)
	pool := netaddr.Pool{Name: "p", Prefix: netip.MustParsePrefix("10.1.0.0/26")}
	a, err := ipam.New(ipam.Config{Pools: []netaddr.Pool{pool}, CoolDown: -1})
	if err != nil {
		t.Fatal(err)
	}
	var o owners
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			holder := fmt.Sprint("worker ", w)
			for round := range rounds {
				if err := assignAndRelease(a, &o, holder, round%7 == 0); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	checkStats(t, a, ipam.Stats{Pool: pool, Free: 61})
	if left := a.Leases(); len(left) != 1 || left[0].Holder != ipam.InternalHolder {
		t.Errorf("left: %v", left)
	}
}

func assignAndRelease(a *ipam.Allocator, o *owners, holder string, undo bool) error {
	leases, err := a.Lease(ipam.Request{Holder: holder})
	if errors.Is(err, ipam.ErrExhausted{Pool: "p"}) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := o.take(leases[0]); err != nil {
		return err
	}
	if s := a.Stats()[0]; s.Free+s.Leased+s.Used+s.Cooling != 61 {
		return fmt.Errorf("counters do not add up: %+v", s)
	}
	o.leave(leases[0])
	if undo {
		a.Undo(holder)
		return nil
	}
	a.Commit(holder)
	a.Release(holder)
	return nil
}
