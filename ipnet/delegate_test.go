package ipnet_test

import (
	"fmt"
	"net/netip"
	"reflect"
	"testing"

	"github.com/weftnet/weft/ipnet/attach"
	"github.com/weftnet/weft/pod"
)

// delegated returns an ADD that another plugin delegates, in the sandbox of that name.
func delegated(ev *pod.AddPod) *pod.AddPod {
	ev.Mode = pod.ModeDelegate
	ev.Key.IfName = "net1"
	return ev
}

func routes(destinations ...string) (all []pod.Route) {
	for _, d := range destinations {
		all = append(all, pod.Route{Destination: netip.MustParsePrefix(d), Gateway: netip.MustParseAddr("192.0.2.1")})
	}
	return all
}

const (
	toPools = "[10.1.0.1/32 10.1.0.0/28 via 10.1.0.1 2001:db8:1::/64 via fe80::1]"
	to4     = "[10.1.0.1/32 10.1.0.0/28 via 10.1.0.1"
)

func TestDelegateGetsNoDefaultRoute(t *testing.T) {
	withDefault := foreign("a", "10.7.0.5/24")
	withDefault.Requested.Delegation.Routes = routes("0.0.0.0/0")
	tests := []struct {
		name   string
		before *pod.AddPod
		add    *pod.AddPod
		want   string
	}{
		{"without another interface of Weft", nil, sandbox("a"), toPools},
		{"beside an interface with a route to the pools", sandbox("a"), sandbox("a"), "[]"},
		{"beside one of another network", chained(asking("a", "x/tap/stub", "")), sandbox("a"), toPools},
		{"in another sandbox", sandbox("bb"), sandbox("a"), toPools},
		{"with addresses of another plugin", nil, foreign("a", "10.7.0.5/24"), to4 + "]"},
		{"with a default route of another plugin", nil, withDefault, to4 + " 0.0.0.0/0 via 10.1.0.1]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t, four, six).run(t)
			if tt.before != nil {
				n.add(t, tt.before)
			}
			a := n.add(t, delegated(tt.add))
			if got := fmt.Sprint(a.Interfaces[0].Routes); got != tt.want {
				t.Errorf("routes %s, want %s", got, tt.want)
			}
			if got := a.Interfaces[0].Gateways[0].String(); got != "10.1.0.1" {
				t.Errorf("gateway %s", got)
			}
		})
	}
}

func chained(ev *pod.AddPod) *pod.AddPod {
	ev.Mode = pod.ModeChained
	return ev
}

func TestInterfaceBesideADelegateHasNoDuplicateRoute(t *testing.T) {
	n := newNode(t, four).run(t)
	n.add(t, delegated(sandbox("a")))
	a := n.add(t, chained(asking("a", "x/tap", "")))
	if got := a.Interfaces[0].Routes; len(got) != 0 {
		t.Errorf("routes %v", got)
	}
}

func TestDelegateIsReconstructedUnchanged(t *testing.T) {
	n := newNode(t, four, six).run(t)
	var found []attach.Found
	primary := n.add(t, sandbox("a"))
	beside := n.add(t, delegated(sandbox("a")))
	alone := n.add(t, delegated(sandbox("bb")))
	for _, a := range []*pod.Attachment{alone, beside, primary} {
		found = append(found, foundOf(t, n, a))
	}
	attachments, refused := newNode(t, four, six).Pods.Reconstruct(found, nil)
	if len(refused) > 0 || len(attachments) != 3 {
		t.Fatalf("%d attachments, refused %v", len(attachments), refused)
	}
	for i, want := range []*pod.Attachment{primary, beside, alone} {
		if got := attachments[i]; got.Key != want.Key || !reflect.DeepEqual(got.Interfaces, want.Interfaces) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}

func TestPodHasTheRoutesOfAForeignPlugin(t *testing.T) {
	n := newNode(t, four, six).run(t)
	n.set(t, custom("blue", pod.L3, "10.99.0.0/16"))
	ev := foreign("a", "10.7.0.5/24")
	ev.Requested.Delegation.Routes = routes("0.0.0.0/0", "10.98.0.0/16", "10.98.0.0/16", "fd00:9::/64")
	a := n.add(t, ev)
	want := "[169.254.1.1/32 0.0.0.0/0 via 169.254.1.1 10.98.0.0/16 via 169.254.1.1]"
	if got := fmt.Sprint(a.Interfaces[0].Routes); got != want {
		t.Errorf("routes %s, want %s", got, want)
	}
	key := "linux.route/linux.tap-peer/" + a.Interfaces[0].Object + "/10.98.0.0/16"
	if n.committer.Values()[key] == nil {
		t.Errorf("no value %s of\n%s", key, list(t, n.committer.Values()))
	}
	n = n.restarted(t)
	if n.committer.Values()[key] == nil {
		t.Errorf("after a restart: no value %s", key)
	}
	twice := foreign("b", "10.7.0.6/24")
	twice.Annotations = asking("b", "x1/tap/blue", "").Annotations
	twice.Requested.Delegation.Routes = routes("10.99.0.0/16")
	checkRefusal(t, n.refuses(t, twice), pod.CodeInvalidAnnotation, "both lead to 10.99.0.0/16")
}

// destinations returns routes to different hosts.
func destinations(count int) (all []pod.Route) {
	for i := range count {
		host := netip.AddrFrom4([4]byte{11, byte(i >> 16), byte(i >> 8), byte(i)})
		all = append(all, pod.Route{Destination: netip.PrefixFrom(host, 32)})
	}
	return all
}

// The configuration of an IPAM plugin has room for 40,000 routes. All would be objects of the pod's transaction, for
// which the pods of the node wait.
func TestRoutesOfAForeignPluginAreBounded(t *testing.T) {
	n := newNode(t, four).run(t)
	for _, mode := range []string{pod.ModePrimary, pod.ModeDelegate} {
		ev := foreign("a", "10.7.0.5/32")
		ev.Mode = mode
		ev.Requested.Delegation.Routes = destinations(pod.MaxRoutes + 1)
		checkRefusal(t, n.refuses(t, ev), pod.CodeInvalidConfig,
			"the IPAM plugin returned 65 routes, at most 64 are possible")
	}
	ev := foreign("a", "10.7.0.5/32")
	ev.Requested.Delegation.Routes = destinations(pod.MaxRoutes)
	if got := len(n.add(t, ev).Interfaces[0].Routes); got != pod.MaxRoutes+2 {
		t.Errorf("%d routes, want those of the plugin and two of Weft", got)
	}
}

// By DHCP a pod of the network may be the server, which can send classless routes (RFC 3442).
func TestRoutesOfADHCPServerAreBounded(t *testing.T) {
	n := newNode(t, four).run(t)
	n.set(t, lan(true))
	a := n.add(t, awaiting("a", "tap", "lan"))
	before := n.state(t)
	_, err := n.loop.Do(t.Context(), addressed(a, "10.9.0.2/24", "10.9.0.1", destinations(pod.MaxRoutes+1)...))
	checkRefusal(t, err, pod.CodeInvalidConfig, "the IPAM plugin returned 65 routes, at most 64 are possible")
	if after := n.state(t); after != before {
		t.Errorf("before\n%s\nafter\n%s", before, after)
	}
	twice := destinations(pod.MaxRoutes - 1)
	ev := addressed(a, "10.9.0.2/24", "10.9.0.1", append(twice, twice[0])...)
	if _, err := n.loop.Do(t.Context(), ev); err != nil || len(ev.Attachment.Interfaces[0].Routes) != pod.MaxRoutes-1 {
		t.Errorf("with a destination twice: error %v, %d routes", err, len(ev.Attachment.Interfaces[0].Routes))
	}
	a = n.add(t, awaiting("b", "tap", "lan"))
	ev = addressed(a, "10.9.0.3/24", "10.9.0.1", destinations(pod.MaxRoutes)...)
	if _, err := n.loop.Do(t.Context(), ev); err != nil || len(ev.Attachment.Interfaces[0].Routes) != pod.MaxRoutes {
		t.Errorf("error %v, routes %v", err, ev.Attachment.Interfaces[0].Routes)
	}
}
