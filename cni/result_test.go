package cni

import (
	"encoding/json"
	"errors"
	"net"
	"reflect"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// callOf is a call with this configuration, as weft-cni or as weft-ipam.
func callOf(r role, change func(*conf)) *call {
	c := private.defaults()
	c.CNIVersion = "1.1.0"
	c.Name = "weft"
	change(c)
	return &call{
		plugin:  &plugin{role: r},
		CmdArgs: &skel.CmdArgs{ContainerID: "c1", IfName: "eth0"},
		conf:    c,
		log:     openLog(c),
	}
}

func cidr(t *testing.T, text string) net.IPNet {
	t.Helper()
	ip, network, err := net.ParseCIDR(text)
	if err != nil {
		t.Fatal(err)
	}
	return net.IPNet{IP: ip, Mask: network.Mask}
}

func TestResultRejectsInvalidReplies(t *testing.T) {
	for name, tt := range map[string]struct {
		reply *weftv1.AddReply
		want  string
	}{
		"no prefix length": {
			&weftv1.AddReply{Ips: []*weftv1.IP{{Address: "10.1.1.7"}}}, "address of the reply",
		},
		"an invalid gateway": {
			&weftv1.AddReply{Ips: []*weftv1.IP{{Address: "10.1.1.7/32", Gateway: "x"}}}, "gateway of the reply",
		},
		"an invalid destination": {
			&weftv1.AddReply{Routes: []*weftv1.Route{{Destination: "default"}}}, "route of the reply",
		},
		"an invalid next hop": {
			&weftv1.AddReply{Routes: []*weftv1.Route{{Destination: "::/0", Gateway: "fe80::x"}}},
			"gateway of the reply",
		},
		"an index out of range": {
			&weftv1.AddReply{
				Interfaces: []*weftv1.Interface{{Name: "eth0"}},
				Ips:        []*weftv1.IP{{Address: "10.1.1.7/32", Interface: 1}},
			},
			"interface index 1, and there are 1",
		},
		"an address without links": {
			&weftv1.AddReply{Ips: []*weftv1.IP{{Address: "10.1.1.7/32"}}}, "interface index 0, and there are 0",
		},
	} {
		if _, err := callOf(role{}, func(*conf) {}).composer(nil).result(tt.reply); !strings.Contains(textOfError(err),
			tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

func TestResultOfWeftIPAMHasNoInterfaces(t *testing.T) {
	reply := &weftv1.AddReply{
		Interfaces: []*weftv1.Interface{{Name: "eth0"}},
		Ips:        []*weftv1.IP{{Address: "10.1.1.7/24", Interface: 5}},
	}
	result, err := callOf(role{ipam: true}, func(*conf) {}).composer(nil).result(reply)
	if err != nil || len(result.Interfaces) != 0 || len(result.IPs) != 1 || result.IPs[0].Interface != nil {
		t.Errorf("%v, %v", result, err)
	}
}

func TestRoutesOfWeftIPAMGetTheGatewayOfTheirFamily(t *testing.T) {
	c := callOf(role{ipam: true}, func(c *conf) {
		c.Routes = []*types.Route{
			{Dst: cidr(t, "0.0.0.0/0")}, {Dst: cidr(t, "::/0")}, {
				Dst: cidr(t, "10.9.0.0/16"),
				GW:  net.ParseIP("10.1.1.250"),
			},
		}
	})
	result, err := c.composer(nil).result(&weftv1.AddReply{Ips: []*weftv1.IP{
		{Address: "10.1.1.7/24", Gateway: "10.1.1.1"}, {Address: "fd00::7/64", Gateway: "fd00::1"},
	}})
	if err != nil || len(result.Routes) != 3 {
		t.Fatalf("%v, %v", result, err)
	}
	for i, want := range []string{"10.1.1.1", "fd00::1", "10.1.1.250"} {
		if got := result.Routes[i].GW.String(); got != want {
			t.Errorf("the gateway of %s is %s, want %s", result.Routes[i].Dst.String(), got, want)
		}
	}
}

func TestPrecedenceOfDNS(t *testing.T) {
	reply := &weftv1.AddReply{Dns: &weftv1.DNS{Nameservers: []string{"reply"}}}
	prev := func(server ...string) *types100.Result { return &types100.Result{DNS: types.DNS{Nameservers: server}} }
	for name, tt := range map[string]struct {
		role     role
		mode     string
		prev     *types100.Result
		conf     []string
		wantText string
	}{
		"the reply alone":                    {role{}, "primary", nil, nil, "reply"},
		"the configuration before the reply": {role{}, "primary", nil, []string{"conf"}, "conf"},
		"prevResult before both":             {role{}, "primary", prev("prev"), []string{"conf"}, "prev"},
		"an empty prevResult":                {role{}, "primary", prev(), []string{"conf"}, "conf"},
		"a chain without dns":                {role{}, modeChained, prev(), []string{"conf"}, ""},
		"weft-ipam ignores its caller's dns": {role{ipam: true}, "primary", nil, []string{"conf"}, "reply"},
	} {
		c := callOf(tt.role, func(c *conf) {
			c.Mode = tt.mode
			c.DNS.Nameservers = tt.conf
		})
		if got := strings.Join(c.composer(tt.prev).dns(reply).Nameservers, ","); got != tt.wantText {
			t.Errorf("%s: %q, want %q", name, got, tt.wantText)
		}
		asked := &weftv1.AddReply{Dns: reply.GetDns(), NetworkDns: &weftv1.DNS{
			Nameservers: []string{"network"},
			Domain:      "a",
			Search:      []string{"b"},
			Options:     []string{"c"},
		}}
		want := types.DNS{Nameservers: []string{"network"}, Domain: "a", Search: []string{"b"}, Options: []string{"c"}}
		if got := c.composer(tt.prev).dns(asked); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, although the pod asks for the DNS of a network", name, got)
		}
	}
}

func TestPrevResultRejectsNullAndEmptyElements(t *testing.T) {
	for _, document := range []string{
		`{"cniVersion":"0.2.0","ip4":{"ip":"10.1.2.3/24","routes":[null]}}`,
		`{"cniVersion":"0.4.0","ips":[null]}`,
		`{"cniVersion":"1.0.0","interfaces":[null]}`,
		`{"cniVersion":"1.0.0","ips":[null]}`,
		`{"cniVersion":"1.1.0","routes":[null]}`,
		`{"cniVersion":"1.0.0","ips":[{}]}`,
		`{"cniVersion":"1.0.0","routes":[{"gw":"10.1.2.1"}]}`,
	} {
		_, version, _ := strings.Cut(document, `"cniVersion":"`)
		c, err := private.parse([]byte(`{"name":"weft","cniVersion":"`+version[:5]+`","prevResult":`+document+`}`),
			role{})
		if err != nil {
			t.Fatal(err)
		}
		if result, err := c.prevResult(); !errors.Is(err, errIncomplete) {
			t.Errorf("%s: %v, %v", document, result, err)
		}
	}
}

func TestCheckRequestContainsPrevResult(t *testing.T) {
	prev := &types100.Result{
		Interfaces: []*types100.Interface{
			{Name: "veth1"}, {
				Name:       "eth0",
				Mac:        "02:00:00:00:00:01",
				Mtu:        -1,
				Sandbox:    "/run/netns/blue",
				SocketPath: "/run/memif.sock",
			},
		},
		IPs: []*types100.IPConfig{
			{Address: cidr(t, "10.1.1.7/32"), Gateway: net.ParseIP("169.254.1.1"), Interface: types100.Int(1)},
			{Address: cidr(t, "10.1.1.8/32"), Interface: types100.Int(2)},
			{Address: cidr(t, "10.1.1.9/32"), Interface: types100.Int(-1)},
			{Address: cidr(t, "10.1.1.10/32")},
		},
		Routes: []*types.Route{
			{Dst: cidr(t, "0.0.0.0/0"), GW: net.ParseIP("169.254.1.1")}, {Dst: cidr(t, "10.0.0.0/8")},
		},
	}
	req := callOf(role{}, func(*conf) {}).checkRequest(prev)
	if in := req.GetInterfaces(); len(in) != 2 || in[1].GetMtu() != 0 || in[1].GetMac() != "02:00:00:00:00:01" ||
		in[1].GetSandbox() != "/run/netns/blue" ||
		in[1].GetSocketPath() != "/run/memif.sock" || in[0].GetName() != "veth1" {
		t.Errorf("interfaces: %v", in)
	}
	if ips := req.GetIps(); len(ips) != 1 || ips[0].GetAddress() != "10.1.1.7/32" ||
		ips[0].GetGateway() != "169.254.1.1" || ips[0].GetInterface() != 1 {
		t.Errorf("only the address of an interface is Weft's: %v", ips)
	}
	if routes := req.GetRoutes(); len(routes) != 2 || routes[0].GetGateway() != "169.254.1.1" ||
		routes[1].GetGateway() != "" || routes[1].GetDestination() != "10.0.0.0/8" {
		t.Errorf("routes: %v", routes)
	}
	if ips := callOf(role{ipam: true}, func(*conf) {}).checkRequest(prev).GetIps(); len(ips) != 4 ||
		ips[3].GetAddress() != "10.1.1.10/32" {
		t.Errorf("addresses of weft-ipam: %v", ips)
	}
}

func TestWeftIPAMIgnoresPrevResult(t *testing.T) {
	r := newRuntime(t)
	r.ipam = true
	r.keys["ipam"] = map[string]any{"type": "weft-ipam", "socket": r.socket}
	r.keys["prevResult"] = json.RawMessage(`{"cniVersion":"1.1.0","ips":[{"address":"10.9.0.2/24"}]}`)
	if _, out := succeeds[*weftv1.AddRequest](r, "ADD"); strings.Contains(out, "10.9.0.2") ||
		!strings.Contains(out, "10.1.1.7/32") {
		t.Errorf("the result is that of the allocation only: %s", out)
	}
}
