package pod

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

func TestPermissionsAreForSelectedPods(t *testing.T) {
	one := Moving{Addresses: []netip.Prefix{netip.MustParsePrefix("10.5.0.100/32")}, VirtualRouters: []int{51}}
	two := Moving{Addresses: append([]netip.Prefix{netip.MustParsePrefix("10.5.0.64/28")}, one.Addresses...)}
	n := Network{Permissions: []Permission{
		{Moving: one, Pods: []ID{{Namespace: "a", Name: "router", UID: "1"}}},
		{Moving: two, Pods: []ID{{Namespace: "a", Name: "router", UID: "1"}, {Namespace: "a", Name: "vip", UID: "2"}}},
	}}
	for _, tt := range []struct {
		id   ID
		want string
	}{
		{ID{"a", "router", "1"}, "[10.5.0.100 10.5.0.64/28 virtual router 51]"},
		{ID{"a", "router", ""}, "[10.5.0.100 10.5.0.64/28 virtual router 51]"},
		{ID{"a", "router", "9"}, "[]"},
		{ID{"b", "router", "1"}, "[]"},
		{ID{"a", "vip", "2"}, "[10.5.0.64/28 10.5.0.100]"},
		{ID{}, "[]"},
	} {
		if got := fmt.Sprint(n.PermittedTo(tt.id).Texts()); got != tt.want {
			t.Errorf("%v: got %s, want %s", tt.id, got, tt.want)
		}
	}
}

func TestPermissionsAreValidated(t *testing.T) {
	of := func(texts ...string) (m Moving) {
		for _, text := range texts {
			m.Addresses = append(m.Addresses, netip.MustParsePrefix(text))
		}
		return m
	}
	many := Moving{}
	for id := range 16 {
		many.VirtualRouters = append(many.VirtualRouters, id+1)
	}
	for name, tt := range map[string]struct {
		permitted []Moving
		want      string
	}{
		"addresses":       {[]Moving{of("10.5.0.100/32", "fd05::100/120", "10.9.0.0/24")}, ""},
		"nothing":         {[]Moving{{}}, "permissions: each needs allowedAddresses or virtualRouters"},
		"the gateway":     {[]Moving{of("10.5.0.0/28")}, "permissions: allowedAddresses: 10.5.0.0-10.5.0.15 contains the gateway"},
		"host bits":       {[]Moving{of("10.5.0.101/28")}, "did you mean 10.5.0.96/28?"},
		"a wrong router":  {[]Moving{{VirtualRouters: []int{256}}}, "permissions: virtualRouters: 256 is not within"},
		"the most":        {[]Moving{many, many}, ""},
		"more than these": {[]Moving{many, many, many}, "at most 32 of each are possible"},
	} {
		n := site(t, "", func(n *Network) {
			for _, m := range tt.permitted {
				n.Permissions = append(n.Permissions, Permission{Moving: m})
			}
		})
		err := n.Validate()
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: got %v, want %q", name, err, tt.want)
		}
	}
	routed := Network{
		Name: "red", Type: L3, CIDRs: []netip.Prefix{netip.MustParsePrefix("10.5.0.0/24")},
		Permissions: []Permission{{Moving: of("10.5.0.100/32")}},
	}
	if err := routed.Validate(); err == nil || !strings.Contains(err.Error(), "only for a network of type L2") {
		t.Errorf("a routed network: %v", err)
	}
}
