package agent

import (
	"errors"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/test/must"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/programs"
)

// A node whose dataplane had no taps has veths to it. If it gets one with taps and has lost its state file, they have
// the names of these taps.
func TestLinksOfAFormerDataplaneAreReplaced(t *testing.T) {
	netnstest.RequireTap(t)
	dataplane.RequireTap(t)
	for object, former := range map[string]struct{ name, alias string }{
		desired.HostObject:   {node.HostLink, desired.HostAlias},
		desired.TunnelObject: {desired.DefaultTunnelLink, desired.TunnelAlias},
	} {
		pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: desired.HostName(object)}, PeerName: former.name}
		must.Succeed(t, netlink.LinkAdd(pair))
		t.Cleanup(func() { _ = netlink.LinkDel(pair) })
		for _, name := range []string{pair.Name, former.name} {
			link, err := netlink.LinkByName(name)
			must.Succeed(t, errors.Join(err, netlink.LinkSetAlias(link, former.alias), netlink.LinkSetUp(link)))
		}
	}
	l := newLab(t, programs.Build(t)) // waits until the agent is ready
	host, err := netlink.LinkByName(node.HostLink)
	if err != nil || host.Type() != "tuntap" {
		t.Errorf("host link %+v, %v", host, err)
	}
	if link, err := netlink.LinkByName(desired.HostName(desired.TunnelObject)); err == nil {
		t.Errorf("link %+v is left", link)
	}
	a := l.pod("a")
	l.cni("ADD", a, nil)
	l.cni("DEL", a, nil)
}
