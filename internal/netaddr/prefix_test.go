package netaddr_test

import (
	"net/netip"
	"testing"

	"github.com/weftnet/weft/internal/netaddr"
)

func TestSingleContainsOneAddress(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.1":        "10.0.0.1/32",
		"fd00::1":         "fd00::1/128",
		"::ffff:10.0.0.1": "::ffff:10.0.0.1/128",
		"fe80::1%eth0":    "fe80::1/128",
	} {
		if got := netaddr.Single(netip.MustParseAddr(text)); got != netip.MustParsePrefix(want) {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	if got := netaddr.Single(netip.Addr{}); got.IsValid() {
		t.Errorf("of an invalid address: %s", got)
	}
}

func TestLastIsTheHighestAddress(t *testing.T) {
	for prefix, want := range map[string]string{
		"0.0.0.0/0":         "255.255.255.255",
		"10.1.2.0/23":       "10.1.3.255",
		"10.1.2.77/23":      "10.1.3.255",
		"10.1.2.3/32":       "10.1.2.3",
		"2001:db8::/61":     "2001:db8:0:7:ffff:ffff:ffff:ffff",
		"2001:db8::1/128":   "2001:db8::1",
		"::ffff:0.0.0.0/96": "::ffff:255.255.255.255",
	} {
		if got := netaddr.Last(netip.MustParsePrefix(prefix)); got != netip.MustParseAddr(want) {
			t.Errorf("%s: %s, want %s", prefix, got, want)
		}
	}
	if got := netaddr.Last(netip.Prefix{}); got.IsValid() {
		t.Errorf("of an invalid prefix: %s", got)
	}
}
