package ipam_test

import (
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet/ipam"
)

// TestLockIsHeldForAShortTime measures uncontended calls, which hold the lock for nearly all of their time. It measures
// CPU time, which does not depend on other load. The node has ten times the usual number of pods, and as many cooling
// addresses.
func TestLockIsHeldForAShortTime(t *testing.T) {
	const (
		pods   = 1000
		rounds = 5000
		most   = time.Millisecond
	)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pool := netaddr.Pool{Name: "p", Prefix: netip.MustParsePrefix("10.1.0.0/20")}
	a, err := ipam.New(ipam.Config{Pools: []netaddr.Pool{pool}, CoolDown: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 * pods {
		holder := fmt.Sprint("pod ", i)
		if _, err := a.Lease(ipam.Request{Holder: holder}); err != nil {
			t.Fatal(err)
		}
		a.Commit(holder)
		if i >= pods {
			a.Release(holder)
		}
	}
	var held []time.Duration
	measure := func(call func()) {
		began := cpuTime(t)
		call()
		held = append(held, cpuTime(t)-began)
	}
	for i := range rounds {
		holder := "young"
		asked := ipam.Request{Holder: "young"}
		measure(func() { _, err = a.Lease(asked) })
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			measure(func() { a.Undo(holder) })
			continue
		}
		measure(func() { a.Commit(holder) })
		if i < 2*pods { // the pool is large, but finite
			measure(func() { a.Release(holder) })
		}
		measure(func() { a.Stats() })
	}
	slices.Sort(held)
	if p99 := held[len(held)*99/100]; p99 > most {
		t.Errorf("99 of 100 calls hold the lock for %s at most, want %s", p99, most)
	} else {
		t.Logf("of %d calls: median %s, 99 of 100 within %s", len(held), held[len(held)/2], p99)
	}
}

// cpuTime returns the CPU time of this thread.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		t.Fatal(err)
	}
	return time.Duration(ts.Nano())
}
