package pod

import (
	"net/netip"
	"strings"
	"testing"
)

func cidrs(texts ...string) (all []netip.Prefix) {
	for _, t := range texts {
		all = append(all, netip.MustParsePrefix(t))
	}
	return all
}

func TestInvalidNetworksAreRejectedByName(t *testing.T) {
	for _, tc := range []struct {
		n    Network
		want string
	}{
		{Network{Name: "blue", Type: L3, CIDRs: cidrs("10.5.0.0/24", "fd05::/64")}, ""},
		{Network{Name: "wire", Type: L2}, ""},
		{Network{Name: "Blue", Type: L2}, "must be a DNS label"},
		{Network{Name: "default", Type: L2}, "other than default and stub"},
		{Network{Name: "blue", Type: "L4"}, `type "L4" is neither`},
		{Network{Name: "blue", Type: L3}, "needs CIDRs"},
		{Network{Name: "blue", Type: L2, MTU: 10}, "MTU 10 is not within 576"},
		{Network{Name: "blue", Type: L2, MTU: 576}, ""},
		{Network{Name: "blue", Type: L2, MTU: MaxMTU}, ""},
		{Network{Name: "blue", Type: L2, MTU: MaxMTU + 1}, "MTU 9601 is not within 576"},
		{Network{Name: "blue", Type: L2, MTU: 1280, CIDRs: cidrs("fd05::/64")}, ""},
		{Network{Name: "blue", Type: L2, MTU: 1000, CIDRs: cidrs("fd05::/64")}, "MTU 1000 is not within 1280"},
		{Network{Name: "blue", Type: L2, VNI: 1 << 24}, "VNI 16777216 is above"},
		{Network{Name: "blue", Type: L2, CIDRs: cidrs("10.5.0.1/24")}, "host bits"},
		{Network{Name: "blue", Type: L2, CIDRs: cidrs("10.5.0.0/24", "10.6.0.0/24")}, "at most one of each family"},
		{Network{Name: "blue", Type: L2, CIDRs: cidrs("10.5.0.0/31")}, "too small"},
		{Network{Name: "blue", Type: L2, CIDRs: cidrs("::ffff:10.5.0.0/120")}, "IPv4 in the notation of IPv6"},
		{Network{Name: "blue", Type: L2, CIDRs: cidrs("127.0.0.0/24")}, "no unicast addresses"},
		{Network{Name: "blue", Type: L2, CIDRs: cidrs("0.0.0.0/0")}, "no unicast addresses"},
		{Network{Name: "blue", Type: L2, CIDRs: cidrs("224.0.0.0/24")}, "no unicast addresses"},
		{Network{Name: "blue", Type: L2, CIDRs: cidrs("fe80::/64")}, "no unicast addresses"},
		{Network{Name: "blue", Type: L2, CIDRs: cidrs("169.254.10.0/24")}, ""},
	} {
		err := tc.n.Validate()
		if (err == nil) != (tc.want == "") ||
			err != nil && (!strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), tc.n.Name)) {
			t.Errorf("%+v: got %v, want %q", tc.n, err, tc.want)
		}
	}
}

// JSON has the invalid prefix as an empty text.
func TestInvalidPrefixesAreRefused(t *testing.T) {
	mapped := netip.MustParsePrefix("::ffff:10.60.0.0/112")
	for _, p := range []netip.Prefix{{}, mapped} {
		for name, n := range map[string]Network{
			"a routed prefix": {Type: L3, CIDRs: cidrs("fd05::/64", "10.5.0.0/24"), RoutedPrefixes: []netip.Prefix{p}},
			"a permission": {
				Type: L2, Permissions: []Permission{{Moving: Moving{Addresses: []netip.Prefix{p}}}},
			},
		} {
			n.Name = "blue"
			if err := n.Validate(); err == nil || !strings.Contains(err.Error(), "is not an IPv4 or IPv6") {
				t.Errorf("%s %s: %v", name, p, err)
			}
		}
	}
}

func TestANetworkAdmitsItsNamespaces(t *testing.T) {
	open := Network{Name: "a"}
	closed := Network{Name: "b", Namespaces: []string{"shop"}}
	if !open.Admits("any") || !closed.Admits("shop") || closed.Admits("any") {
		t.Error("a network admits all namespaces, or those that it names")
	}
}
