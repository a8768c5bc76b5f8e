package pod

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/weftnet/weft/internal/netaddr"
)

func TestMovingAddressesOfOptionsAreParsed(t *testing.T) {
	many := func(format string, count int) string {
		var items []string
		for n := range count {
			items = append(items, fmt.Sprintf(format, n+1))
		}
		return strings.Join(items, ", ")
	}
	for text, want := range map[string]string{
		`{"allowedAddresses": ["10.5.0.100", "fd05::64/128", "10.9.0.0/24"]}`: "",
		`{"virtualRouters": [1, 51, 255]}`:                                    "",
		`{"allowedAddresses": [` + many(`"10.5.0.%d"`, 16) + `]}`:             "",
		`{"virtualRouters": [` + many("%d", 16) + `]}`:                        "",

		`{"allowedAddresses": "10.5.0.100"}`:                      "allowedAddresses: expected a JSON list such as",
		`{"allowedAddresses": ["10.5.0.100-10.5.0.110"]}`:         "is not an IPv4 or IPv6 address",
		`{"allowedAddresses": ["10.5.0.1/24"]}`:                   "did you mean 10.5.0.0/24?",
		`{"allowedAddresses": ["0.0.0.0/0"]}`:                     "0.0.0.0/0 are not unicast addresses",
		`{"allowedAddresses": ["::/0"]}`:                          "are not unicast addresses",
		`{"allowedAddresses": ["224.0.0.18"]}`:                    "are not unicast addresses",
		`{"allowedAddresses": ["fe80::1"]}`:                       "are not unicast addresses",
		`{"allowedAddresses": ["ff02::12"]}`:                      "are not unicast addresses",
		`{"allowedAddresses": [` + many(`"10.5.0.%d"`, 17) + `]}`: "17 addresses, at most 16 are possible",
		`{"virtualRouters": "51"}`:                                "virtualRouters: expected a JSON list of IDs",
		`{"virtualRouters": [0]}`:                                 "virtualRouters: 0 is not within 1 and 255",
		`{"virtualRouters": [256]}`:                               "virtualRouters: 256 is not within 1 and 255",
		`{"virtualRouters": [51, 51]}`:                            "virtualRouters: 51 occurs twice",
		`{"virtualRouters": [` + many("%d", 17) + `]}`:            "17 IDs, at most 16 are possible",
	} {
		_, err := InterfaceRequests(map[string]string{
			AnnotationCustom: "t1/tap/blue", AnnotationOptions: `{"t1": ` + text + `}`,
		}, "eth0")
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}

func TestVirtualRoutersHaveTheMACsOfTheirProtocols(t *testing.T) {
	if got := fmt.Sprint(MACsOfVirtualRouter(51)); got != "[00:00:5e:00:01:33 00:00:5e:00:02:33]" {
		t.Errorf("MACs of virtual router 51: %s", got)
	}
}

// site returns a network with these moving addresses.
func site(t *testing.T, allowed string, change func(*Network)) Network {
	t.Helper()
	n := Network{Name: "blue", Type: L2, VirtualRouters: []int{51}, CIDRs: []netip.Prefix{
		netip.MustParsePrefix("10.5.0.0/24"), netip.MustParsePrefix("fd05::/64"),
	}}
	for text := range strings.FieldsSeq(allowed) {
		r, err := netaddr.ParseRange(text)
		if err != nil {
			t.Fatal(err)
		}
		n.AllowedAddresses = append(n.AllowedAddresses, r)
	}
	change(&n)
	return n
}

func TestNetworksPermitOnlyAddressesThatCanMove(t *testing.T) {
	unchanged := func(*Network) {}
	for name, tt := range map[string]struct {
		allowed string
		change  func(*Network)
		want    string
	}{
		"addresses of the network": {"10.5.0.100-10.5.0.110 fd05::100/120", unchanged, ""},
		"addresses elsewhere":      {"10.9.0.0/24 fd09::/64", unchanged, ""},
		"a network without CIDRs":  {"10.5.0.0/24", func(n *Network) { n.CIDRs = nil }, ""},
		"the gateway": {
			"10.5.0.0/28", unchanged, "allowedAddresses: 10.5.0.0-10.5.0.15 contains the gateway 10.5.0.1",
		},
		"no gateway": {"10.5.0.0/28", func(n *Network) { n.Gateway.None = true }, ""},
		"a range across the border": {
			"10.5.0.200-10.5.1.2", unchanged, "10.5.0.200-10.5.1.2 is partly within the cidrs: split it",
		},
		"a range around the network": {"10.0.0.0/8", unchanged, "is partly within the cidrs: split it"},
		"link-local addresses":       {"fe80::1", unchanged, "fe80::1 are not unicast addresses that are routed"},
		"link-local IPv4 addresses":  {"169.254.1.1", unchanged, "169.254.1.1 are not unicast addresses that are routed"},
		"loopback addresses":         {"127.0.0.53", unchanged, "127.0.0.53 are not unicast addresses that are routed"},
		"multicast addresses":        {"224.0.0.18", unchanged, "224.0.0.18 are not unicast addresses that are routed"},
		"all addresses":              {"::-ffff::", unchanged, "are not unicast addresses that are routed"},
		"a routed network":           {"10.5.0.100", func(n *Network) { n.Type = L3 }, "only for a network of type L2"},
		"a direct network": {"", func(n *Network) {
			n.Direct = true
			n.CIDRs = nil
		}, "only for a network of type L2 that is not direct"},
		"an impossible virtual router": {
			"", func(n *Network) { n.VirtualRouters = []int{256} }, "virtualRouters: 256 is not within 1 and 255",
		},
	} {
		n := site(t, tt.allowed, tt.change)
		err := n.Validate()
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: got %v, want %q", name, err, tt.want)
		}
	}
}

func TestAnInterfaceMovesOnlyWhatItsNetworkPermits(t *testing.T) {
	blue := site(t, "10.5.0.100-10.5.0.110 fd05::100/120", func(*Network) {})
	bare := site(t, "", func(n *Network) { n.VirtualRouters = nil })
	routed := Network{Name: "red", Type: L3}
	direct := Network{Name: "fast", Type: L2, Direct: true}
	of := func(texts ...string) (m Moving) {
		for _, text := range texts {
			m.Addresses = append(m.Addresses, netip.MustParsePrefix(text))
		}
		return m
	}
	for name, tt := range map[string]struct {
		network Network
		moving  Moving
		want    string
	}{
		"nothing":           {bare, Moving{}, ""},
		"permitted":         {blue, of("10.5.0.100/32", "10.5.0.104/30", "fd05::180/121"), ""},
		"a permitted MAC":   {blue, Moving{VirtualRouters: []int{51}}, ""},
		"above the range":   {blue, of("10.5.0.111/32"), "does not permit 10.5.0.111/32: add it to"},
		"beyond its end":    {blue, of("10.5.0.108/30"), "network blue does not permit 10.5.0.108/30"},
		"below its start":   {blue, of("10.5.0.96/29"), "network blue does not permit 10.5.0.96/29"},
		"another MAC":       {blue, Moving{VirtualRouters: []int{52}}, "does not permit 52: add it to"},
		"none is permitted": {bare, of("10.5.0.100/32"), "network blue does not permit 10.5.0.100/32"},
		"a routed network":  {routed, of("10.5.0.100/32"), "addresses do not move on network red"},
		"a direct network":  {direct, of("10.5.0.100/32"), "addresses do not move on network fast"},
		"default":           {Network{Name: DefaultNetwork}, of("10.1.0.9/32"), "do not move on network default"},
		"stub":              {Network{Name: StubNetwork}, Moving{VirtualRouters: []int{1}}, "on network stub"},
	} {
		o := InterfaceOptions{Moving: tt.moving}
		err := tt.network.Suits(InterfaceRequest{Name: "t1", Type: TypeMemif, Options: o})
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: got %v, want %q", name, err, tt.want)
		}
	}
}

func TestNoInterfaceHasTheMACOfAVirtualRouterOfItsNetwork(t *testing.T) {
	blue := site(t, "", func(*Network) {})
	for text, want := range map[string]string{
		"00:00:5e:00:01:33": "mac: 00:00:5e:00:01:33 moves between pods of network blue",
		"00:00:5e:00:02:33": "mac: 00:00:5e:00:02:33 moves between pods of network blue",
		"00:00:5e:00:01:34": "",
	} {
		mac, err := netaddr.ParseMAC(text)
		if err != nil {
			t.Fatal(err)
		}
		o := InterfaceOptions{AddressRequest: AddressRequest{MAC: mac}}
		err = blue.Suits(InterfaceRequest{Name: "t1", Type: TypeTap, Options: o})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}
