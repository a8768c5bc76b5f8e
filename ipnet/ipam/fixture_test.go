package ipam_test

import (
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet/ipam"
)

const coolDown = 30 * time.Second

var (
	four = netaddr.Pool{Name: "four", Prefix: netip.MustParsePrefix("10.1.0.0/29")}      // pods: .2 to .6
	six  = netaddr.Pool{Name: "six", Prefix: netip.MustParsePrefix("2001:db8::/125")}    // pods: ::2 to ::7
	next = netaddr.Pool{Name: "next", Prefix: netip.MustParsePrefix("10.2.0.0/30")}      // pods: .2
	huge = netaddr.Pool{Name: "huge", Prefix: netip.MustParsePrefix("2001:db8:1::/48")}  // pods: 2^80 and some
	tiny = netaddr.Pool{Name: "tiny", Prefix: netip.MustParsePrefix("2001:db8:2::/126")} // pods: ::2, ::3
)

// clock is a manual clock.
type clock struct{ now time.Time }

func newClock() *clock { return &clock{time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)} }

func (c *clock) read() time.Time { return c.now }

func (c *clock) pass(d time.Duration) { c.now = c.now.Add(d) }

type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

func newAllocator(t fataler, c *clock, pools ...netaddr.Pool) *ipam.Allocator {
	t.Helper()
	a, err := ipam.New(ipam.Config{Pools: pools, CoolDown: coolDown, Now: c.read})
	if err != nil {
		t.Fatalf("new: %v", err)
	}
	return a
}

// lease leases addresses for a holder, and returns them as text.
func lease(t fataler, a *ipam.Allocator, holder string, wanted ...string) []string {
	t.Helper()
	leases, err := a.Lease(request(holder, wanted...))
	if err != nil {
		t.Fatalf("lease for %s: %v", holder, err)
	}
	var addresses []string
	for _, l := range leases {
		addresses = append(addresses, l.Address.String())
	}
	return addresses
}

func request(holder string, wanted ...string) ipam.Request {
	r := ipam.Request{Holder: holder}
	for _, w := range wanted {
		r.Addresses = append(r.Addresses, netip.MustParseAddr(w))
	}
	return r
}

func use(t fataler, a *ipam.Allocator, holder string, wanted ...string) []string {
	t.Helper()
	addresses := lease(t, a, holder, wanted...)
	a.Commit(holder)
	return addresses
}

func checkStats(t *testing.T, a *ipam.Allocator, want ...ipam.Stats) {
	t.Helper()
	got := a.Stats()
	if len(got) != len(want) {
		t.Fatalf("stats of %d pools, want %d", len(got), len(want))
	}
	for i := range got {
		if !reflect.DeepEqual(got[i], want[i]) {
			t.Errorf("stats %+v, want %+v", got[i], want[i])
		}
	}
}
