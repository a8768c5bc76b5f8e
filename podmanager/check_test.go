package podmanager

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"

	"github.com/weftnet/weft/pod"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// checkOf returns a CHECK with the reply of an ADD as prevResult.
func checkOf(reply *weftv1.AddReply) *weftv1.CheckRequest {
	return &weftv1.CheckRequest{
		Caller: caller(), Attachment: attachment("c1"), Netns: "/run/netns/a",
		Interfaces: reply.GetInterfaces(), Ips: reply.GetIps(), Routes: reply.GetRoutes(),
	}
}

func (n *node) check1(t *testing.T, req *weftv1.CheckRequest) *weftv1.Error {
	t.Helper()
	reply, err := n.Check(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return reply.GetError()
}

func TestCheckReportsDifferencesFromPrevResult(t *testing.T) {
	tests := map[string]struct {
		spoil func(req *weftv1.CheckRequest)
		text  string
	}{
		"the interface": {
			func(r *weftv1.CheckRequest) { r.Interfaces[0].Name = "eth1" }, "interface eth0 is missing in prevResult",
		},
		"the MAC": {
			func(r *weftv1.CheckRequest) { r.Interfaces[0].Mac = "02:00:00:00:00:01" },
			"mac of interface eth0 is 02:fe:00:00:00:01, and 02:00:00:00:00:01 in prevResult",
		},
		"the MTU": {
			func(r *weftv1.CheckRequest) { r.Interfaces[0].Mtu = 9000 },
			"mtu of interface eth0 is 1450, and 9000 in prevResult",
		},
		"an address": {
			func(r *weftv1.CheckRequest) { r.Ips[1].Address = "fd00::6/128" },
			"address fd00::5/128 of interface eth0 is missing",
		},
		"a route": {
			func(r *weftv1.CheckRequest) { r.Routes[0].Gateway = "10.0.0.1" },
			"route 0.0.0.0/0 via 169.254.1.1 is missing",
		},
		"the namespace": {
			func(r *weftv1.CheckRequest) { r.Netns = "/run/netns/b" }, "/run/netns/b is not the one of the ADD",
		},
		"all of it": {func(r *weftv1.CheckRequest) { r.Attachment.ContainerId = "c9" }, "no such attachment on this node"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			req := checkOf(n.add(t, "c1", "/run/netns/a"))
			tt.spoil(req)
			wantError(t, n.check1(t, req), 105, tt.text)
		})
	}
	n := newNode(t)
	req := checkOf(n.add(t, "c1", "/run/netns/a"))
	n.set(func() { n.device = 5 })
	wantError(t, n.check1(t, req), 105, "/run/netns/a is not the one of the ADD")
}

func TestCheckToleratesAdditionsOfLaterPlugins(t *testing.T) {
	n := newNode(t)
	req := checkOf(n.add(t, "c1", "/run/netns/a"))
	req.Interfaces = append([]*weftv1.Interface{{Name: "veth7"}, {Name: "eth0", Mac: "02:00:00:00:00:09"}},
		req.Interfaces...)
	for _, ip := range req.Ips {
		ip.Interface = 2
	}
	req.Interfaces[2].Mtu = 0 // results before 1.1.0 have no MTU
	req.Interfaces[2].Mac = "02:FE:00:00:00:01"
	req.Ips[1].Address = "fd00:0:0::5/128"
	req.Ips = append(req.Ips, &weftv1.IP{Address: "10.9.9.9/24", Interface: 2})
	req.Routes = append(req.Routes, &weftv1.Route{Destination: "10.9.0.0/16"})
	if err := n.check1(t, req); err != nil {
		t.Error(err)
	}
}

func TestCheckWaitsForConvergence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		req := checkOf(n.add(t, "c1", "/run/netns/a"))
		n.set(func() { n.differences = []string{"eth0 is down", "route is missing", ""} })
		if err := n.check1(t, req); err != nil || n.verified != 3 {
			t.Errorf("after %d verifications: %v", n.verified, err)
		}
		n.set(func() { n.differences = []string{"mtu of eth0 is 1500, should be 1450"} })
		wantError(t, n.check1(t, req), 105, "differs from the result of ADD: mtu of eth0 is 1500, should be 1450")
		n.stopLoop()
	})
}

func TestStatusReportsWhetherAddWouldBeServed(t *testing.T) {
	n := newNode(t)
	status := func() *weftv1.Error {
		reply, err := n.Status(t.Context(), &weftv1.StatusRequest{Caller: caller(), Network: "weft"})
		if err != nil {
			t.Fatal(err)
		}
		return reply.GetError()
	}
	if err := status(); err != nil {
		t.Error(err)
	}
	n.set(func() { n.exhausted = "pool exhausted: all addresses of pool a are held" })
	wantError(t, status(), 50, "pool exhausted: all addresses of pool a are held")
	n.set(func() {
		n.exhausted = ""
		n.paused = "maintenance"
	})
	wantError(t, status(), 50, "paused: maintenance")
	n.set(func() { n.notReady = errors.New("dataplane away") })
	wantError(t, status(), 50, "dataplane away")
	n.set(func() { n.notReady = pod.Errorf(pod.CodeLimited, "dataplane lost") })
	wantError(t, status(), 51, "dataplane lost")
	hasStarted := false
	n.machine.started = func() bool { return hasStarted }
	n.set(func() { n.notReady = errors.New("dataplane away") })
	// the plugin forgives the first resync only
	for details, want := range map[string]bool{restoring: false, starting: true} {
		hasStarted = want
		if err := status(); err.GetDetails() != details {
			t.Errorf("started %t: details %q, want %q", hasStarted, err.GetDetails(), details)
		}
	}
	n.set(func() { n.notReady = pod.Errorf(pod.CodeLimited, "dataplane lost") })
	hasStarted = false
	if err := status(); err.GetDetails() != restoring {
		t.Errorf("before the first resync: %v", err)
	}
}

func mac(have string) Difference {
	return Difference{Text: "mac is " + have, Interface: "eth0", Field: FieldMAC, Have: have}
}

func mtu(have string) Difference {
	return Difference{Text: "mtu is " + have, Interface: "eth0", Field: FieldMTU, Have: have}
}

// TestCheckComparesLinksWithPrevResult checks a link with the promised MAC 02:fe:00:00:00:01 and MTU 1450 against
// prevResult and the differences that the kernel has.
func TestCheckComparesLinksWithPrevResult(t *testing.T) {
	const other = "02:00:00:00:00:77"
	tests := map[string]struct {
		mac   string // in prevResult; "" = as promised
		mtu   uint32 // the same; 1 = prevResult has none
		shown []Difference
		later int    // MTU that a later plugin set
		text  string // "" = success
	}{
		"as promised":                           {"", 0, nil, 0, ""},
		"a MAC that a later plugin set":         {other, 0, []Difference{mac(other)}, 0, ""},
		"a MAC that no plugin of the chain set": {"", 0, []Difference{mac(other)}, 0, "mac is 02:00:00:00:00:77"},
		"another MAC than the one that was set": {
			other, 0, []Difference{mac("02:00:00:00:00:78")}, 0, "mac is 02:00:00:00:00:78",
		},
		"a MAC that was set and then undone": {
			other, 0, nil, 0, "mac of interface eth0 is 02:fe:00:00:00:01, and 02:00:00:00:00:77 in prevResult",
		},
		"an MTU that a later plugin set":         {"", 1400, []Difference{mtu("1400")}, 0, ""},
		"an MTU that no plugin of the chain set": {"", 0, []Difference{mtu("1400")}, 0, "mtu is 1400"},
		"an MTU that was set and then undone": {
			"", 1400, nil, 0, "mtu of interface eth0 is 1450, and 1400 in prevResult",
		},
		"an MTU that is drift, and a version without": {"", 1, []Difference{mtu("1400")}, 0, "mtu is 1400"},
		"an MTU of a later plugin that told of it":    {"", 1400, nil, 1400, ""},
		"an MTU of a later plugin that did not":       {"", 0, nil, 1400, ""},
		"an MTU other than the later plugin's":        {"", 0, []Difference{mtu("1300")}, 1400, "mtu is 1300"},
		"an MTU that nothing shows": {
			"", 1350, nil, 1400, "mtu of interface eth0 is 1450, and 1350 in prevResult",
		},
		"MAC and MTU, one of them wrong": {
			other, 1400, []Difference{mac(other), mtu("1300")}, 0, "mtu is 1300",
		},
		"another field of the link": {
			"", 0, []Difference{{Text: "up is false", Interface: "eth0", Field: "up", Have: "false"}}, 0, "up is false",
		},
		"a missing link": {
			other, 0, []Difference{{Text: "eth0: missing", Interface: "eth0"}}, 0, "eth0: missing",
		},
		"the MAC of a link that prevResult lacks": {
			other, 0, []Difference{mac(other), {Text: "mac is x", Interface: "tap1", Field: FieldMAC, Have: other}}, 0,
			"mac is x",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				req := checkOf(n.add(t, "c1", "/run/netns/a"))
				if tt.mac != "" {
					req.Interfaces[0].Mac = tt.mac
				}
				if tt.mtu != 0 {
					req.Interfaces[0].Mtu = tt.mtu &^ 1
				}
				n.set(func() { n.links = tt.shown })
				n.machine.end = func(*pod.Attachment) map[string]int { return map[string]int{"eth0": tt.later} }
				err := n.check1(t, req)
				if tt.text == "" && err != nil {
					t.Errorf("CHECK failed: %v", err)
				}
				if tt.text != "" {
					wantError(t, err, 105, tt.text)
				}
				n.stopLoop()
			})
		})
	}
}

// TestCheckOfIPAMAttachmentComparesAddressesOnly checks an attachment of mode ipam: another plugin made its interface.
func TestCheckOfIPAMAttachmentComparesAddressesOnly(t *testing.T) {
	tests := map[string]struct {
		ips  []*weftv1.IP
		text string
	}{
		"on any interface": {
			[]*weftv1.IP{{Address: "10.9.0.1/24"}, {Address: "10.3.0.7/16", Interface: 1}}, "",
		},
		"no addresses in prevResult": {nil, ""},
		"another address": {
			[]*weftv1.IP{{Address: "10.3.0.8/16"}}, "address 10.3.0.7/16 is missing in prevResult",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			n := newNodeWith(t, &pod.Attachment{
				Key: keyOfContainer("c1"), Netns: pod.Netns{Path: "/run/netns/a", Inode: 11, Device: 4},
				Interfaces: []pod.Interface{{
					Name: "eth0", Type: pod.TypeIPAM, Addresses: []netip.Prefix{netip.MustParsePrefix("10.3.0.7/16")},
					Routes: []pod.Route{{Destination: netip.MustParsePrefix("0.0.0.0/0")}},
				}},
			})
			err := n.check1(t, &weftv1.CheckRequest{
				Caller: caller(), Attachment: attachment("c1"), Netns: "/run/netns/a", Mode: "ipam", Ips: tt.ips,
				Interfaces: []*weftv1.Interface{
					{Name: "eth0", Mac: "aa:00:00:00:00:01", Mtu: 9000, Sandbox: "/run/netns/a"},
				},
			})
			if tt.text == "" && err != nil {
				t.Errorf("CHECK failed: %v", err)
			}
			if tt.text != "" {
				wantError(t, err, 105, tt.text)
			}
		})
	}
}

func TestChainedAttachmentWithoutInterfacesIsKept(t *testing.T) {
	n := newNode(t)
	n.machine.linkAlias = func(context.Context, pod.Netns, string) (string, bool, error) { return "", false, nil }
	req := addOf("c1", "/run/netns/a")
	req.Mode = pod.ModeChained
	n.bare = true
	if _, reply := n.asked(t, req); len(reply.GetInterfaces())+len(reply.GetIps()) != 0 {
		t.Fatalf("reply %v", reply)
	}
	n.want(t, "c1")
	if err := n.check1(t, &weftv1.CheckRequest{
		Caller:     caller(),
		Attachment: attachment("c1"),
		Netns:      "/run/netns/a",
		Mode:       "chained",
	}); err != nil {
		t.Errorf("CHECK: %v", err)
	}
	n.set(func() { n.now = n.now.Add(defaultGrace) })
	reply, err := n.Collect(context.Background(), &weftv1.CollectRequest{Caller: caller(), Network: "weft"})
	if err != nil || reply.GetError() != nil || len(reply.GetRemoved()) != 1 {
		t.Errorf("GC: %v, %v", reply, err)
	}
	n.want(t)
}
