package agent

import (
	"errors"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/ipnet/mesh"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/test/programs"
)

// A foreign link with the name of the host link cuts pods off from the node: the agent must not be ready.
func TestAgentIsNotReadyWithoutItsHostLink(t *testing.T) {
	l := newLab(t, programs.Build(t))
	if err := l.StopAgent(); err != nil {
		t.Fatal(err)
	}
	link, err := netlink.LinkByName("weft0")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetDown(link); err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetName(link, "weft0away"); err != nil {
		t.Fatal(err)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "weft0"
	foreign := netlink.NewVeth(attrs)
	foreign.PeerName = "foreign0"
	if err := netlink.LinkAdd(foreign); err != nil {
		t.Fatal(err)
	}
	if err := l.BeginAgent(); err != nil {
		t.Fatal(err)
	}
	end := map[string]string{"tap": "linux.tap-peer", "veth": "linux.veth"}[dataplane.Tap()]
	l.waitsFor(l.pod("a"), "network: "+end+"/weft-host: ", pod.CodeLimited)
	if err := netlink.LinkDel(foreign); err != nil {
		t.Fatal(err)
	}
	// The agent may already have deleted a renamed veth, to recreate it.
	if err := netlink.LinkSetName(link, "weft0"); err != nil && !errors.Is(err, syscall.ENODEV) {
		t.Fatal(err)
	}
	if err := l.AwaitReady(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestLinkTypesFollowWhatTheDataplaneCanCreate(t *testing.T) {
	const reason = "no vhost-net"
	for _, tt := range []struct {
		pods, host, noTap string
		want              mesh.LinkTypes
	}{
		{config.Auto, config.Auto, "", mesh.LinkTypes{Pod: pod.TypeTap, Host: pod.TypeTap}},
		{config.Auto, config.Auto, reason, mesh.LinkTypes{Pod: pod.TypeVeth, Host: pod.TypeVeth, NoTap: reason}},
		{pod.TypeVeth, config.Auto, "", mesh.LinkTypes{Pod: pod.TypeVeth, Host: pod.TypeTap}},
		{pod.TypeTap, pod.TypeVeth, reason, mesh.LinkTypes{Pod: pod.TypeTap, Host: pod.TypeVeth, NoTap: reason}},
	} {
		c := config.Config{Pods: config.Pods{Interface: tt.pods}, Links: config.Links{HostType: tt.host}}
		if got := linkTypes(&c, tt.noTap); got != tt.want {
			t.Errorf("%+v: got %+v", tt, got)
		}
	}
}
