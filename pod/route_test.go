package pod

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"github.com/weftnet/weft/internal/netaddr"
)

func TestRoutesOfOptionsAreParsed(t *testing.T) {
	options := func(json string) map[string]string {
		return map[string]string{AnnotationCustom: "t1/tap/blue, m1/memif/blue", AnnotationOptions: json}
	}
	for text, want := range map[string]string{
		`{"t1": {"routes": [{"to": "10.2.0.0/16", "via": "10.1.0.9", "metric": 7}]}}`: "",
		`{"t1": {"routes": [{"to": "fd02::/64"}], "ipForwarding": true}}`:             "",
		`{"t1": {"routes": [{"to": "10.96.0.0/12", "interface": "eth0"}]}}`:           "",
		`{"t1": {"routes": [{"to": "10.2.0.1"}]}}`:                                    "",
		`{"t1": {"gateway": "10.1.0.9, fd01::9"}, "m1": {"defaultRoute": true}}`:      "",

		`{"t1": {"routes": {"to": "10.2.0.0/16"}}}`:                       "routes: expected a JSON list such as",
		`{"t1": {"routes": [{"via": "10.1.0.9"}]}}`:                       "routes: route 1: to: a destination such as",
		`{"t1": {"routes": [{"to": "10.2.0.1/16"}]}}`:                     "did you mean 10.2.0.0/16?",
		`{"t1": {"routes": [{"to": "10.2.0.0/16", "dev": "t1"}]}}`:        "route 1: dev: unknown key; known are to, via",
		`{"t1": {"routes": [{"to": "10.2.0.0/16", "via": "fd01::9"}]}}`:   "are of different families",
		`{"t1": {"routes": [{"to": "10.2.0.0/16", "via": "224.0.0.1"}]}}`: "cannot be the address of a router",
		`{"t1": {"routes": [{"to": "224.0.0.0/4"}]}}`:                     "is not a range of unicast addresses",
		`{"t1": {"routes": [{"to": "10.2.0.0/16", "metric": -1}]}}`:       "route 1: metric: expected 0 to 2147483647",
		`{"t1": {"routes": [{"to": "fd02::/64", "metric": 1024}]}}`:       "metric: the kernel gives 1024 to IPv6 routes",
		`{"t1": {"routes": [{"to": "10.2.0.0/16", "metric": 1024}]}}`:     "",
		`{"t1": {"routes": [{"to": "10.2.0.0/16"}, {"to": "10.2.0.0/16", "via": "10.1.0.9"}]}}`: "10.2.0.0/16 and " +
			"10.2.0.0/16 via 10.1.0.9 have the same destination and metric",
		`{"t1": {"routes": [{"to": "10.2.0.0/16", "via": "10.1.0.9", "interface": "eth0"}]}}`: "exclude each other",
		`{"t1": {"gateway": "none"}}`:               `gateway: expected the address of a router, not "none"`,
		`{"t1": {"gateway": "10.1.0.9,10.1.0.10"}}`: "10.1.0.10 is the second address of its family",
		`{"t1": {"defaultRoute": "yes"}}`:           "defaultRoute: expected true or false",
		`{"m1": {"ipForwarding": true}}`:            "the kernel does not forward packets of a memif",
	} {
		_, err := InterfaceRequests(options(text), "eth0")
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", text, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}

func TestNetworksOfASiteAreValidated(t *testing.T) {
	ranges := func(texts ...string) (ranges netaddr.Ranges) {
		for _, text := range texts {
			r, err := netaddr.ParseRange(text)
			if err != nil {
				t.Fatal(err)
			}
			ranges = append(ranges, r)
		}
		return ranges
	}
	gateway := func(text string) Gateway {
		g, err := ParseGateway(text)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	to := func(text, via string) []RouteRequest {
		r := RouteRequest{To: netip.MustParsePrefix(text)}
		if via != "" {
			r.Via = netip.MustParseAddr(via)
		}
		return []RouteRequest{r}
	}
	for name, tt := range map[string]struct {
		change func(*Network)
		want   string
	}{
		"a gateway of each family":      {func(n *Network) { n.Gateway = gateway("10.1.0.254,fd01::fe") }, ""},
		"no gateway":                    {func(n *Network) { n.Gateway = gateway("none") }, ""},
		"a router":                      {func(n *Network) { n.Routes = to("0.0.0.0/0", "10.1.0.9") }, ""},
		"a router of the subnet's link": {func(n *Network) { n.Routes = to("::/0", "fe80::1") }, ""},
		"the dataplane as the router":   {func(n *Network) { n.Routes = to("10.2.0.0/16", "") }, ""},
		"a routed network": {func(n *Network) {
			n.Type = L3
			n.Routes = to("10.2.0.0/16", "")
		}, ""},
		"ranges": {func(n *Network) {
			n.Reserved = ranges("10.1.0.1-10.1.0.20", "fd01::/120")
			n.Excluded = ranges("10.1.0.128/25")
		}, ""},
		"an L3 network without a gateway": {func(n *Network) {
			n.Type = L3
			n.Gateway = gateway("none")
		}, "gateway: a network of type L3 needs one"},
		"a gateway without CIDRs": {func(n *Network) {
			n.CIDRs = nil
			n.Gateway = gateway("none")
		}, "gateway: only a network with cidrs has one"},
		"a gateway elsewhere": {
			func(n *Network) { n.Gateway = gateway("10.9.0.1") },
			"gateway: 10.9.0.1 is not the address of a host in the cidrs",
		},
		"a gateway of a family that the network lacks": {
			func(n *Network) {
				n.CIDRs = n.CIDRs[1:]
				n.Gateway = gateway("10.1.0.9")
			},
			"gateway: 10.1.0.9 is not the address of a host in the cidrs",
		},
		"an IPv4 router of a network without IPv4": {
			func(n *Network) {
				n.CIDRs = n.CIDRs[1:]
				n.Routes = to("10.2.0.0/16", "10.1.0.9")
			},
			"routes: 10.2.0.0/16 via 10.1.0.9: via is not the address of a host in the cidrs of network blue",
		},
		"the broadcast address as a gateway": {
			func(n *Network) { n.Gateway = gateway("10.1.0.255") },
			"gateway: 10.1.0.255 is not the address of a host in the cidrs",
		},
		"the network's own address as a gateway": {
			func(n *Network) { n.Gateway = gateway("10.1.0.0") },
			"gateway: 10.1.0.0 is not the address of a host in the cidrs",
		},
		"a router of a family that the network lacks": {
			func(n *Network) {
				n.CIDRs = n.CIDRs[:1]
				n.Routes = to("fd02::/64", "fd01::9")
			},
			"routes: fd02::/64 via fd01::9: via is not the address of a host in the cidrs of network blue",
		},
		"a range elsewhere": {
			func(n *Network) { n.Reserved = ranges("10.1.0.200-10.1.1.2") },
			"reserved: 10.1.0.200-10.1.1.2 is not within the cidrs",
		},
		"a router elsewhere": {
			func(n *Network) { n.Routes = to("10.2.0.0/16", "10.9.0.1") },
			"routes: 10.2.0.0/16 via 10.9.0.1: via is not the address of a host in the cidrs of network blue",
		},
		"a router of a routed network": {func(n *Network) {
			n.Type = L3
			n.Routes = to("10.2.0.0/16", "10.1.0.9")
		}, "routes: 10.2.0.0/16 via 10.1.0.9: the dataplane routes the packets of network blue"},
		"a route without a next hop": {func(n *Network) {
			n.Gateway = gateway("none")
			n.Routes = to("10.2.0.0/16", "")
		}, "network blue has no gateway of this family: name the next hop by via"},
		"a route to the network itself": {
			func(n *Network) { n.Routes = to("10.1.0.0/24", "10.1.0.9") },
			"this is the network itself",
		},
		"a direct network": {func(n *Network) {
			n.CIDRs = nil
			n.Direct = true
			n.Routes = to("10.2.0.0/16", "10.1.0.9")
		}, "routes: pods of a direct network have their own"},
	} {
		t.Run(name, func(t *testing.T) {
			n := Network{Name: "blue", Type: L2, CIDRs: []netip.Prefix{
				netip.MustParsePrefix("10.1.0.0/24"), netip.MustParsePrefix("fd01::/64"),
			}}
			tt.change(&n)
			err := n.Validate()
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			raw, err := json.Marshal(n)
			if err != nil {
				t.Fatal(err)
			}
			var again Network
			if err := json.Unmarshal(raw, &again); err != nil {
				t.Fatal(err)
			}
			if raw2, err := json.Marshal(again); err != nil || string(raw2) != string(raw) {
				t.Errorf("stored as %s, read as %s (%v)", raw, raw2, err)
			}
		})
	}
}

func TestADefaultRouteNeedsARouter(t *testing.T) {
	with := func(text string, cidrs ...netip.Prefix) Network {
		g, err := ParseGateway(text)
		if err != nil {
			t.Fatal(err)
		}
		return Network{Name: "blue", Type: L2, Gateway: g, CIDRs: cidrs}
	}
	cidr := netip.MustParsePrefix("10.1.0.0/24")
	router := Gateway{Addresses: []netip.Addr{netip.MustParseAddr("10.1.0.9")}}
	far := Gateway{Addresses: []netip.Addr{netip.MustParseAddr("10.9.0.9")}}
	for name, tt := range map[string]struct {
		network Network
		options InterfaceOptions
		want    string
	}{
		"the dataplane":        {with("", cidr), InterfaceOptions{DefaultRoute: true}, ""},
		"a pod":                {with("none", cidr), InterfaceOptions{Gateway: router}, ""},
		"a pod without CIDRs":  {with(""), InterfaceOptions{Gateway: router}, ""},
		"no gateway":           {with("none", cidr), InterfaceOptions{DefaultRoute: true}, "has no gateway: name a router"},
		"no CIDRs":             {with(""), InterfaceOptions{DefaultRoute: true}, "has no gateway: name a router"},
		"a router elsewhere":   {with("", cidr), InterfaceOptions{Gateway: far}, "via is not the address of a host in the cidrs"},
		"the network default":  {Network{Name: DefaultNetwork}, InterfaceOptions{DefaultRoute: true}, ""},
		"a router on default":  {Network{Name: DefaultNetwork}, InterfaceOptions{Gateway: router}, "the dataplane routes"},
		"a direct network":     {Network{Name: "blue", Type: L2, Direct: true}, InterfaceOptions{DefaultRoute: true}, "is direct"},
		"the network stub":     {Network{Name: StubNetwork}, InterfaceOptions{Gateway: router}, "the network stub leads nowhere"},
		"by default on a stub": {Network{Name: StubNetwork}, InterfaceOptions{DefaultRoute: true}, "the network stub leads nowhere"},
	} {
		kind := TypeTap
		if tt.network.Direct {
			kind = TypeMemif
		}
		err := tt.network.Suits(InterfaceRequest{Name: "t1", Type: kind, Options: tt.options})
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: got %v, want %q", name, err, tt.want)
		}
	}
}
