package pod

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

func TestRoutedPrefixesOfOptionsAreParsed(t *testing.T) {
	many := func(count int) string {
		var items []string
		for n := range count {
			items = append(items, fmt.Sprintf(`"10.60.%d.0/24"`, n))
		}
		return strings.Join(items, ", ")
	}
	for text, want := range map[string]string{
		`["10.60.0.0/24", "fd60::/64", "10.61.0.1"]`: "",
		`[` + many(16) + `]`:                         "",

		`"10.60.0.0/24"`:                   "routedPrefixes: expected a JSON list of prefixes such as",
		`["10.60.0.1/24"]`:                 "did you mean 10.60.0.0/24?",
		`["10.60.0.0-10.60.0.9"]`:          "is not an IPv4 or IPv6 address",
		`["0.0.0.0/0"]`:                    "0.0.0.0/0 are not unicast addresses",
		`["ff00::/16"]`:                    "are not unicast addresses",
		`["10.60.0.0/24", "10.60.0.0/25"]`: "10.60.0.0/25 overlaps another one",
		`[` + many(17) + `]`:               "17 prefixes, at most 16 are possible",
	} {
		_, err := InterfaceRequests(map[string]string{
			AnnotationCustom: "t1/tap/blue", AnnotationOptions: `{"t1": {"routedPrefixes": ` + text + `}}`,
		}, "eth0")
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}

func TestRoutedPrefixesSuitTheirNetwork(t *testing.T) {
	for name, tt := range map[string]struct {
		network Network
		want    string
	}{
		"beside the CIDR": {routedNetwork(L3, "10.60.0.0/16"), ""},
		"on a bridge":     {routedNetwork(L2, "10.60.0.0/16"), "only for a network of type L3"},
		"host bits":       {routedNetwork(L3, "10.60.0.1/16"), "did you mean 10.60.0.0/16?"},
		"in the CIDR":     {routedNetwork(L3, "10.5.0.0/28"), "overlaps the CIDR 10.5.0.0/24"},
		"around the CIDR": {routedNetwork(L3, "10.0.0.0/8"), "overlaps the CIDR 10.5.0.0/24"},
		"other family":    {routedNetwork(L3, "fd60::/64"), "needs a CIDR of its family"},
		"multicast":       {routedNetwork(L3, "224.0.0.0/4"), "are not unicast addresses"},
	} {
		err := tt.network.Validate()
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: got %v, want %q", name, err, tt.want)
		}
	}
}

func TestOnlyPermittedPrefixesAreRouted(t *testing.T) {
	l3 := routedNetwork(L3, "10.60.0.0/16")
	l2 := routedNetwork(L2)
	for _, tt := range []struct {
		network   Network
		requested string
		want      string
	}{
		{l3, "10.60.0.0/16", ""},
		{l3, "10.60.7.0/24", ""},
		{l3, "10.61.0.0/24", "network blue does not permit 10.61.0.0/24"},
		{l3, "10.60.0.0/15", "network blue does not permit 10.60.0.0/15"},
		{l2, "10.60.7.0/24", "network blue does not route"},
		{Network{Name: DefaultNetwork}, "10.60.7.0/24", "network default does not route"},
	} {
		err := tt.network.Suits(InterfaceRequest{
			Name: "t1",
			Type: TypeTap,
			Options: InterfaceOptions{
				RoutedPrefixes: []netip.Prefix{netip.MustParsePrefix(tt.requested)},
			},
		})
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s on %s: got %v, want %q", tt.requested, tt.network.Type, err, tt.want)
		}
	}
}

func routedNetwork(kind NetworkType, prefixes ...string) Network {
	n := Network{Name: "blue", Type: kind, CIDRs: []netip.Prefix{netip.MustParsePrefix("10.5.0.0/24")}}
	for _, p := range prefixes {
		n.RoutedPrefixes = append(n.RoutedPrefixes, netip.MustParsePrefix(p))
	}
	return n
}
