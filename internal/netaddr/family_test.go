package netaddr_test

import (
	"net/netip"
	"testing"

	"github.com/weftnet/weft/internal/netaddr"
)

func TestFamilyOfAMappedAddressIsIPv6(t *testing.T) {
	for text, want := range map[string]netaddr.Family{
		"10.0.0.1":        netaddr.IP4,
		"fd00::1":         netaddr.IP6,
		"::ffff:10.0.0.1": netaddr.IP6,
	} {
		if got := netaddr.FamilyOf(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: %s", text, got)
		}
	}
}
