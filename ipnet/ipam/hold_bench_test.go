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

// BenchmarkLockHold measures uncontended calls, which hold the lock for nearly all of their time, on a node with the
// usual 100 pods and on one with 1,000, each with as many cooling addresses. It measures CPU time, which does not
// depend on other load. The ratio is that of the medians: the price of ten times the pods.
func BenchmarkLockHold(b *testing.B) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var held [2][]time.Duration
	for b.Loop() {
		for i, pods := range []int{100, 1000} {
			held[i] = append(held[i], holdTimes(b, pods)...)
		}
	}
	for i := range held {
		slices.Sort(held[i])
	}
	few, many := held[0], held[1]
	b.ReportMetric(float64(many[len(many)/2])/float64(few[len(few)/2]), "ratio")
	b.ReportMetric(float64(many[len(many)*99/100].Microseconds()), "µs-p99")
	b.ReportMetric(0, "ns/op")
}

// holdTimes returns the CPU times of calls on a node with a number of pods.
func holdTimes(b *testing.B, pods int) (held []time.Duration) {
	b.Helper()
	const rounds = 1000
	pool := netaddr.Pool{Name: "p", Prefix: netip.MustParsePrefix("10.1.0.0/20")}
	a, err := ipam.New(ipam.Config{Pools: []netaddr.Pool{pool}, CoolDown: time.Hour})
	if err != nil {
		b.Fatal(err)
	}
	for i := range 2 * pods {
		holder := fmt.Sprint("pod ", i)
		if _, err := a.Lease(ipam.Request{Holder: holder}); err != nil {
			b.Fatal(err)
		}
		a.Commit(holder)
		if i >= pods {
			a.Release(holder)
		}
	}
	measure := func(call func()) {
		began := cpuTime(b)
		call()
		held = append(held, cpuTime(b)-began)
	}
	const holder = "young"
	for i := range rounds {
		measure(func() { _, err = a.Lease(ipam.Request{Holder: holder}) })
		if err != nil {
			b.Fatal(err)
		}
		if i%2 == 0 {
			measure(func() { a.Undo(holder) })
			continue
		}
		measure(func() { a.Commit(holder) })
		measure(func() { a.Release(holder) })
		measure(func() { a.Stats() })
	}
	return held
}

// cpuTime returns the CPU time of this thread.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		b.Fatal(err)
	}
	return time.Duration(ts.Nano())
}
