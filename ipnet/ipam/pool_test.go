package ipam_test

import (
	"math"
	"net/netip"
	"strings"
	"testing"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet/ipam"
)

func TestInvalidPoolsAreRefused(t *testing.T) {
	pool := func(name, prefix string) netaddr.Pool {
		p, _ := netip.ParsePrefix(prefix)
		return netaddr.Pool{Name: name, Prefix: p}
	}
	tests := []struct {
		name  string
		pools []netaddr.Pool
		want  string // part of the error; "" = taken
	}{
		{"a /30 has one address for a pod", []netaddr.Pool{pool("a", "10.0.0.0/30")}, ""},
		{"a /126 has two", []netaddr.Pool{pool("a", "2001:db8::/126")}, ""},
		{"one pool of each family", []netaddr.Pool{four, six}, ""},
		{"the pool needs a name", []netaddr.Pool{pool("", "10.0.0.0/24")}, "name"},
		{"a slash would break the keys of leases", []netaddr.Pool{pool("a/b", "10.0.0.0/24")}, "slash"},
		{"no prefix", []netaddr.Pool{pool("a", "")}, "not an IPv4 or IPv6 prefix"},
		{
			"an IPv4-mapped prefix is neither family", []netaddr.Pool{pool("a", "::ffff:10.0.0.0/120")},
			"not an IPv4 or IPv6 prefix",
		},
		{"host bits name the right prefix", []netaddr.Pool{pool("a", "10.0.0.5/24")}, "did you mean 10.0.0.0/24?"},
		{"a /31 has no room for a pod", []netaddr.Pool{pool("a", "10.0.0.0/31")}, "too small"},
		{"a /127 has no room for a pod", []netaddr.Pool{pool("a", "2001:db8::/127")}, "too small"},
		{"multicast", []netaddr.Pool{pool("a", "224.0.0.0/24")}, "unicast"},
		{"loopback", []netaddr.Pool{pool("a", "127.0.0.0/24")}, "unicast"},
		{"link-local of IPv6", []netaddr.Pool{pool("a", "fe80::/64")}, "unicast"},
		{"link-local of IPv4", []netaddr.Pool{pool("a", "169.254.0.0/16")}, "unicast"},
		{"all of IPv4", []netaddr.Pool{pool("a", "0.0.0.0/0")}, "unicast"},
		{"a name twice", []netaddr.Pool{pool("a", "10.0.0.0/24"), pool("a", "10.1.0.0/24")}, "two pools"},
		{
			"an overlap names both", []netaddr.Pool{pool("a", "10.0.0.0/16"), pool("b", "10.0.7.0/24")},
			"a (10.0.0.0/16) and b (10.0.7.0/24) overlap",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ipam.New(ipam.Config{Pools: tt.pools})
			if tt.want == "" && err != nil {
				t.Errorf("refused: %v", err)
			}
			if tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}

func TestNetworkNodeAndBroadcastAddressesAreNotForPods(t *testing.T) {
	tests := []struct {
		pool netaddr.Pool
		node string
		free uint64
	}{
		{four, "10.1.0.1", 5},
		{next, "10.2.0.1", 1},
		{six, "2001:db8::1", 6},
		{tiny, "2001:db8:2::1", 2},
		{netaddr.Pool{Name: "p", Prefix: netip.MustParsePrefix("2001:db8::/64")}, "2001:db8::1", math.MaxUint64 - 1},
		{huge, "2001:db8:1::1", math.MaxUint64},
	}
	for _, tt := range tests {
		t.Run(tt.pool.Prefix.String(), func(t *testing.T) {
			if got := tt.pool.Node().String(); got != tt.node {
				t.Errorf("node %s, want %s", got, tt.node)
			}
			checkStats(t, newAllocator(t, newClock(), tt.pool), ipam.Stats{Pool: tt.pool, Free: tt.free})
		})
	}
}

func TestEachAddressForPodsIsGrantedOnce(t *testing.T) {
	for _, pool := range []netaddr.Pool{
		four, six, next, tiny, {Name: "top", Prefix: netip.MustParsePrefix("255.255.255.248/29")},
	} {
		a := newAllocator(t, newClock(), pool)
		seen := map[string]bool{pool.Node().String(): true, pool.Prefix.Addr().String(): true}
		for free := a.Stats()[0].Free; free > 0; free-- {
			address := lease(t, a, string(rune('a'+free)))[0]
			if seen[address] || !pool.Prefix.Contains(netip.MustParseAddr(address)) {
				t.Errorf("pool %s gave %s", pool.Prefix, address)
			}
			seen[address] = true
		}
		if _, err := a.Lease(request("one more")); err == nil {
			t.Errorf("pool %s gave more than it has", pool.Prefix)
		}
	}
}
