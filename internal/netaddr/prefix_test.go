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
