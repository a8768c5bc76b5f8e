package podmanager

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/weftnet/weft/pod"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// checkOf is a CHECK of what an ADD gave.
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

func TestACheckNamesWhatDiffersFromWhatTheRuntimeRemembers(t *testing.T) {
	tests := map[string]struct {
		spoil func(req *weftv1.CheckRequest)
		text  string
	}{
		"the interface": {func(r *weftv1.CheckRequest) { r.Interfaces[0].Name = "eth1" }, "interface eth0 is missing in prevResult"},
		"the MAC":       {func(r *weftv1.CheckRequest) { r.Interfaces[0].Mac = "02:00:00:00:00:01" }, "mac of interface eth0 is 02:fe:00:00:00:01, and 02:00:00:00:00:01 in prevResult"},
		"the MTU":       {func(r *weftv1.CheckRequest) { r.Interfaces[0].Mtu = 9000 }, "mtu of interface eth0 is 1450, and 9000 in prevResult"},
		"an address":    {func(r *weftv1.CheckRequest) { r.Ips[1].Address = "fd00::6/128" }, "address fd00::5/128 of interface eth0 is missing"},
		"a route":       {func(r *weftv1.CheckRequest) { r.Routes[0].Gateway = "10.0.0.1" }, "route 0.0.0.0/0 via 169.254.1.1 is missing"},
		"the namespace": {func(r *weftv1.CheckRequest) { r.Netns = "/run/netns/b" }, "/run/netns/b is not the one that was wired"},
		"all of it":     {func(r *weftv1.CheckRequest) { r.Attachment.ContainerId = "c9" }, "no such attachment here"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			req := checkOf(n.add(t, "c1", "/run/netns/a"))
			tt.spoil(req)
			wantError(t, n.check1(t, req), 105, tt.text)
		})
	}
}

func TestACheckToleratesWhatLaterPluginsAdded(t *testing.T) {
	n := newNode(t)
	req := checkOf(n.add(t, "c1", "/run/netns/a"))
	req.Interfaces = append([]*weftv1.Interface{{Name: "veth7"}, {Name: "eth0", Mac: "02:00:00:00:00:09"}}, req.Interfaces...)
	for _, ip := range req.Ips {
		ip.Interface = 2
	}
	req.Interfaces[2].Mtu = 0 // a result of before 1.1.0
	req.Interfaces[2].Mac = "02:FE:00:00:00:01"
	req.Ips[1].Address = "fd00:0:0::5/128"
	req.Ips = append(req.Ips, &weftv1.IP{Address: "10.9.9.9/24", Interface: 2})
	req.Routes = append(req.Routes, &weftv1.Route{Destination: "10.9.0.0/16"})
	if err := n.check1(t, req); err != nil {
		t.Error(err)
	}
}

func TestACheckWaitsForTheMachineToConverge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		req := checkOf(n.add(t, "c1", "/run/netns/a"))
		n.set(func() { n.differences = []string{"eth0 is down", "route is missing", ""} })
		if err := n.check1(t, req); err != nil || n.verified != 3 {
			t.Errorf("after %d verifications: %v", n.verified, err)
		}
		n.set(func() { n.differences = []string{"mtu of eth0 is 1500, should be 1450"} })
		wantError(t, n.check1(t, req), 105, "differs from what was promised: mtu of eth0 is 1500, should be 1450")
		n.stopLoop()
	})
}

// rows: IPM-03
func TestStatusSaysWhetherAnAddWouldBeServed(t *testing.T) {
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
	n.set(func() { n.exhausted, n.paused = "", "maintenance" })
	wantError(t, status(), 50, "paused: maintenance")
	n.set(func() { n.notReady = errors.New("dataplane away") })
	wantError(t, status(), 50, "dataplane away")
	n.set(func() { n.notReady = pod.Errorf(pod.CodeLimited, "dataplane lost") })
	wantError(t, status(), 51, "dataplane lost")
}
