package podmanager

import (
	"context"
	"net/netip"
	"reflect"
	"testing"

	"github.com/weftnet/weft/pod"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// asked wires one sandbox as req says and returns the event that the handlers saw.
func (n *node) asked(t *testing.T, req *weftv1.AddRequest) (*pod.AddPod, *weftv1.AddReply) {
	t.Helper()
	var seen *pod.AddPod
	n.wiring = func(_ context.Context, ev *pod.AddPod) error { seen = ev; return nil }
	reply, err := n.Add(t.Context(), req)
	if err != nil || reply.GetError() != nil {
		t.Fatalf("ADD: %v, %v", reply.GetError(), err)
	}
	return seen, reply
}

func TestAnAddSaysInWhichMode(t *testing.T) {
	for _, mode := range []string{"", "primary", "chained", "delegate", "ipam"} {
		n := newNode(t)
		req := addOf("c1", "/run/netns/a")
		req.Mode = mode
		if ev, _ := n.asked(t, req); ev.Mode != mode {
			t.Errorf("mode %q became %q", mode, ev.Mode)
		}
	}
}

func TestWhatAForeignIPAMPluginGaveReachesTheHandlersAndTheReply(t *testing.T) {
	n := newNode(t)
	req := addOf("c1", "/run/netns/a")
	req.DelegatedIps = []*weftv1.IP{{Address: "10.7.0.9/16", Gateway: "10.7.0.1"}, {Address: "fd07::9/64"}}
	req.DelegatedRoutes = []*weftv1.Route{{Destination: "0.0.0.0/0"}, {Destination: "10.99.0.3/16", Gateway: "10.7.0.2"}}
	req.DelegatedDns = &weftv1.DNS{Nameservers: []string{"10.7.0.53"}, Domain: "shop.example"}
	ev, reply := n.asked(t, req)
	want := pod.Requested{
		Delegated:         []netip.Prefix{netip.MustParsePrefix("10.7.0.9/16"), netip.MustParsePrefix("fd07::9/64")},
		DelegatedGateways: []netip.Addr{netip.MustParseAddr("10.7.0.1"), {}},
		Delegation: pod.Delegation{
			Routes: []pod.Route{
				{Destination: netip.MustParsePrefix("0.0.0.0/0")},
				{Destination: netip.MustParsePrefix("10.99.0.0/16"), Gateway: netip.MustParseAddr("10.7.0.2")},
			},
			DNS: pod.DNS{Nameservers: []string{"10.7.0.53"}, Domain: "shop.example"},
		},
	}
	if !reflect.DeepEqual(ev.Requested, want) {
		t.Errorf("the handlers saw %+v\nwant %+v", ev.Requested, want)
	}
	routes := reply.GetRoutes()
	if len(routes) != 3 || routes[2].GetDestination() != "10.99.0.0/16" || routes[2].GetGateway() != "169.254.1.1" {
		t.Errorf("routes of the reply are %v, want those of the interface and 10.99.0.0/16 by its gateway", routes)
	}
	if reply.GetDns().GetNameservers()[0] != "10.7.0.53" {
		t.Errorf("dns of the reply is %v", reply.GetDns())
	}
	n.set(func() { n.alias["/run/netns/a"] = "weft:weft/c1/eth0" })
	if again := n.add(t, "c1", "/run/netns/a"); bytesOf(t, again) != bytesOf(t, reply) {
		t.Errorf("a repeated ADD has %v\nthe first had %v", again, reply)
	}
}

func TestWhatAForeignIPAMPluginCannotHaveGivenIsRefused(t *testing.T) {
	tests := map[string]struct {
		spoil func(req *weftv1.AddRequest)
		text  string
	}{
		"no prefix": {func(r *weftv1.AddRequest) { r.DelegatedIps = []*weftv1.IP{{Address: "10.1.1.1"}} }, "address of the IPAM plugin"},
		"two of a family": {func(r *weftv1.AddRequest) {
			r.DelegatedIps = []*weftv1.IP{{Address: "10.1.1.1/24"}, {Address: "10.1.1.2/24"}}
		}, "the second one of its family"},
		"a gateway":            {func(r *weftv1.AddRequest) { r.DelegatedIps = []*weftv1.IP{{Address: "10.1.1.1/24", Gateway: "x"}} }, "gateway of the IPAM plugin"},
		"a route":              {func(r *weftv1.AddRequest) { r.DelegatedRoutes = []*weftv1.Route{{Destination: "x"}} }, "route of the IPAM plugin"},
		"a gateway of a route": {func(r *weftv1.AddRequest) { r.DelegatedRoutes = []*weftv1.Route{{Destination: "::/0", Gateway: "x"}} }, "route ::/0 of the IPAM plugin"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			req := addOf("c1", "/run/netns/a")
			tt.spoil(req)
			wantError(t, n.refusedAdd(t, req), 7, tt.text)
		})
	}
}

func TestOnlyLinksThatWouldBeMadeMayNotExist(t *testing.T) {
	const custom = "contivpp.io/custom-if"
	tests := map[string]struct {
		mode, custom, alias string
		code                uint
		text                string
	}{
		"the main interface of another plugin, in a chain": {"chained", "", "", 0, ""},
		"that of another plugin, which asks for addresses": {"ipam", "eth9/tap", "", 0, ""},
		"the main interface":                  {"primary", "", "", 4, "interface eth0 exists already"},
		"another attachment's main interface": {"primary", "", "weft:other/c1/eth0", 4, "interface eth0 exists already"},
		"an extra interface":                  {"chained", "tap1/tap", "", 103, "interface tap1 exists already"},
		"our own extra interface":             {"chained", "tap1/tap", "weft:weft/c1/eth0/tap1", 0, ""},
		"one that another attachment made":    {"chained", "tap1/tap", "weft:other/c1/net1", 0, ""},
		"one that is no link":                 {"chained", "tap1/memif", "", 0, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.config.LinkExists = func(context.Context, pod.Netns, string) (string, bool, error) { return tt.alias, true, nil }
			req := addOf("c1", "/run/netns/a")
			req.Mode, req.HasAnnotations, req.Annotations = tt.mode, true, map[string]string{custom: tt.custom}
			if tt.code == 0 {
				n.asked(t, req)
				return
			}
			wantError(t, n.refusedAdd(t, req), tt.code, tt.text)
		})
	}
}

func TestFindGivesWhatAddGaveAndMakesNothing(t *testing.T) {
	n := newNode(t)
	find := func(container, netns string) *weftv1.FindReply {
		reply, err := n.Find(t.Context(), &weftv1.FindRequest{Caller: caller(), Attachment: attachment(container), Netns: netns})
		if err != nil {
			t.Fatal(err)
		}
		return reply
	}
	if got := find("c1", "/run/netns/a"); got.GetError() != nil || got.GetFound() != nil {
		t.Errorf("of nothing: %v", got)
	}
	n.want(t)
	added := n.add(t, "c1", "/run/netns/a")
	if got := find("c1", "/run/netns/a"); got.GetError() != nil || bytesOf(t, got.GetFound()) != bytesOf(t, added) {
		t.Errorf("found %v\nadded %v", got, added)
	}
	wantError(t, find("c1", "/run/netns/b").GetError(), 4, "it is wired already")
	wantError(t, find("c/1", "/run/netns/a").GetError(), 4, "no legal name")
	n.set(func() { n.paused = "maintenance" })
	wantError(t, find("c2", "/run/netns/a").GetError(), 11, "paused: maintenance")
}
