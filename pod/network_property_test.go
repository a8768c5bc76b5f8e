package pod

import (
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"github.com/weftnet/weft/internal/netaddr"
)

// Each user can request routes and addresses of families that a network lacks, and each author of a network can write
// them: the answer is an error for one object, and never the end of the agent.
func TestNoRequestEndsTheValidationOfANetwork(t *testing.T) {
	prefixes := []netip.Prefix{{}}
	for _, text := range []string{
		"10.5.0.0/24", "10.5.0.1/24", "fd05::/64", "0.0.0.0/0", "::/0", "10.5.0.9/32", "fd05::9/128", "fe80::/64",
		"::ffff:10.5.0.0/120", "10.60.0.0/16", "fd60::/48",
	} {
		prefixes = append(prefixes, netip.MustParsePrefix(text))
	}
	addresses := []netip.Addr{{}}
	for _, p := range prefixes[1:] {
		addresses = append(addresses, p.Addr(), p.Addr().Next(), netaddr.Last(p))
	}
	prefix := rapid.SampledFrom(prefixes)
	address := rapid.SampledFrom(addresses)
	route := rapid.Custom(func(t *rapid.T) RouteRequest {
		return RouteRequest{
			To:        prefix.Draw(t, "to"),
			Via:       address.Draw(t, "via"),
			Interface: rapid.SampledFrom([]string{"", "t2"}).Draw(t, "interface"),
		}
	})
	some := func(t *rapid.T, name string) []netip.Prefix { return rapid.SliceOfN(prefix, 0, 2).Draw(t, name) }
	rapid.Check(t, func(t *rapid.T) {
		n := Network{
			Name:           "blue",
			Type:           rapid.SampledFrom([]NetworkType{L2, L3}).Draw(t, "type"),
			CIDRs:          some(t, "CIDRs"),
			Gateway:        Gateway{Addresses: rapid.SliceOfN(address, 0, 2).Draw(t, "gateway")},
			Routes:         rapid.SliceOfN(route, 0, 2).Draw(t, "routes"),
			RoutedPrefixes: some(t, "routed prefixes"),
			Permissions:    []Permission{{Moving: Moving{Addresses: some(t, "permitted")}}},
			Direct:         rapid.Bool().Draw(t, "direct"),
		}
		for _, p := range some(t, "ranges") {
			if p.IsValid() {
				n.Reserved = append(n.Reserved, netaddr.RangeOf(p))
				n.AllowedAddresses = append(n.AllowedAddresses, netaddr.RangeOf(p))
			}
		}
		r := InterfaceRequest{Name: "t1", Type: TypeTap, Network: "blue"}
		r.Options.Routes = rapid.SliceOfN(route, 0, 2).Draw(t, "requested routes")
		r.Options.Moving.Addresses = some(t, "requested addresses")
		r.Options.RoutedPrefixes = some(t, "requested prefixes")
		if n.Validate() == nil && n.Suits(r) == nil && len(n.CIDRs) == 0 && n.Type == L3 {
			t.Fatal("a network of type L3 without CIDRs is valid")
		}
	})
}
