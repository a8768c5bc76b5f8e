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

func TestANetworkThatCannotBeIsRefusedByName(t *testing.T) {
	for _, tc := range []struct {
		n    Network
		want string
	}{
		{Network{Name: "blue", Type: L3, CIDRs: cidrs("10.5.0.0/24", "fd05::/64")}, ""},
		{Network{Name: "wire", Type: L2}, ""},
		{Network{Name: "Blue", Type: L2}, "DNS label"},
		{Network{Name: "default", Type: L2}, "not default or stub"},
		{Network{Name: "blue", Type: "L4"}, "type must be L2 or L3"},
		{Network{Name: "blue", Type: L3}, "needs cidrs"},
		{Network{Name: "blue", Type: L2, MTU: 10}, "mtu must be"},
		{Network{Name: "blue", Type: L2, VNI: 1 << 24}, "vni must be"},
		{Network{Name: "blue", Type: L2, CIDRs: cidrs("10.5.0.1/24")}, "host bits"},
		{Network{Name: "blue", Type: L2, CIDRs: cidrs("10.5.0.0/24", "10.6.0.0/24")}, "second one of its family"},
		{Network{Name: "blue", Type: L2, CIDRs: cidrs("10.5.0.0/31")}, "no room"},
	} {
		err := tc.n.Validate()
		if (err == nil) != (tc.want == "") || err != nil && (!strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), tc.n.Name)) {
			t.Errorf("%+v: got %v, want %q", tc.n, err, tc.want)
		}
	}
}

func TestANetworkAdmitsItsNamespaces(t *testing.T) {
	open, closed := Network{Name: "a"}, Network{Name: "b", Namespaces: []string{"shop"}}
	if !open.Admits("any") || !closed.Admits("shop") || closed.Admits("any") {
		t.Error("a network admits all namespaces, or those that it names")
	}
}
