package forward_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/port"
)

func TestTCPArrivesWholeOverAFPacket(t *testing.T) {
	const size = 8 << 20
	tap := func(l *lab) *pod { return l.pod() }
	plainTap := func(l *lab) *pod { return l.pod(func(_ *pod, c *port.TapConfig) { c.NoOffload = true }) }
	veth := func(c cable) func(*lab) *pod { return func(l *lab) *pod { return l.vethPod(c) } }
	for _, c := range []struct {
		rule string
		a, b func(*lab) *pod
		gso  bool // a sends GSO frames
	}{
		{"tap to veth", tap, veth(cable{}), true},
		{"veth to tap", veth(cable{}), tap, true},
		{"veth to veth", veth(cable{}), veth(cable{}), true},
		{"one end uses the queueing discipline", veth(cable{qdisc: true}), veth(cable{}), true},
		{"to a port without offloads", tap, veth(cable{noTxOffload: true}), true},
		{"to a link without offloads", tap, veth(cable{noOffload: true}), true},
		{"to a link without offloads, with queueing discipline", tap, veth(cable{noOffload: true, qdisc: true}), true},
		{"from a link without offloads", veth(cable{noOffload: true}), tap, false},
		{"between a tap and a veth without offloads", plainTap, veth(cable{noOffload: true, noTxOffload: true}), false},
		{"a pod without offloads", veth(cable{noPodOffload: true}), veth(cable{noPodOffload: true}), false},
		{"to a smaller MTU", tap, veth(cable{mtu: 1400}), true},
		{"from a larger MTU", veth(cable{mtu: 9000}), veth(cable{mtu: 1280, noTxOffload: true}), true},
	} {
		t.Run(c.rule, func(t *testing.T) {
			l := newLab(t)
			a := c.a(l)
			b := c.b(l)
			for _, to := range []netip.Addr{b.v4, b.v6} {
				a.transfer(t, b, to, size)
			}
			b.transfer(t, a, a.v4, size/4)
			n := l.engine.Counters(a.index)
			if large := n.RxBytes/n.RxPackets > 2000; large != c.gso {
				t.Errorf("average frame of %d bytes; drops %v", n.RxBytes/n.RxPackets, l.engine.Drops())
			}
		})
	}
}

func TestPodsOnVethsReachEachOtherAndTheirGateway(t *testing.T) {
	l := newLab(t)
	a := l.vethPod(cable{})
	b := l.vethPod(cable{noOffload: true})
	c := l.pod()
	for _, r := range []ping{
		{to: b.v4}, {to: b.v6}, {to: c.v4}, {to: c.v6, size: 1400}, {to: gateway4}, {to: gateway6},
	} {
		a.wantReply(t, r)
	}
	c.wantReply(t, ping{to: a.v4})
	if n := l.engine.Counters(a.index); n.TxErrors != 0 {
		t.Errorf("counters %+v", n)
	}
}

// A packet above the MTU causes an ICMP error with the MTU, or is fragmented if DF is not set.
func TestMTUsOfPortsDiffer(t *testing.T) {
	l := newLab(t)
	a, b := l.pod(func(p *pod, c *port.TapConfig) {
		p.mtu = 9000
		c.HostMTU = 9000
	}), l.vethPod(cable{mtu: 1400})
	for _, c := range []struct {
		rule string
		to   netip.Addr
		want icmp.Type
	}{
		{"IPv4 with DF", b.v4, ipv4.ICMPTypeDestinationUnreachable},
		{"IPv6", b.v6, ipv6.ICMPTypePacketTooBig},
	} {
		m, from, err := a.ping(t, ping{to: c.to, size: 3000})
		if err != nil || m.Type != c.want || from == b.v4 {
			t.Fatalf("%s: got %+v from %v, %v", c.rule, m, from, err)
		}
		if body, ok := m.Body.(*icmp.PacketTooBig); ok && body.MTU != 1400 {
			t.Errorf("%s: MTU %d", c.rule, body.MTU)
		}
		a.wantReply(t, ping{to: c.to, size: 1300})
	}
	a.wantReply(t, ping{to: b.v4, size: 8000, fragment: true})
	b.wantReply(t, ping{to: a.v4, size: 8000, fragment: true})
}

func TestDeletedLinkIsAttachedAgain(t *testing.T) {
	l := newLab(t)
	a := l.pod()
	b := l.vethPod(cable{})
	a.wantReply(t, ping{to: b.v4})
	link, err := netlink.LinkByName(b.hostEnd())
	if err != nil {
		t.Fatal(err)
	}
	broken := func(rule string, f func(netlink.Link) error) {
		t.Helper()
		if err := f(link); err != nil {
			t.Fatal(err)
		}
		if ev := <-l.engine.Events(); ev.Kind != forward.PortDown || ev.Interface != b.index || ev.Err == nil {
			t.Fatalf("%s: event %+v", rule, ev)
		}
	}
	reopened := func(rule string) {
		t.Helper()
		if ev := <-l.engine.Events(); ev.Kind != forward.PortUp || ev.Interface != b.index {
			t.Fatalf("%s: event %+v", rule, ev)
		}
		a.wantReply(t, ping{to: b.v4})
	}
	broken("down", netlink.LinkSetDown)
	a.wantReply(t, ping{to: gateway4})
	if err := netlink.LinkSetUp(link); err != nil {
		t.Fatal(err)
	}
	reopened("up again")
	broken("away", netlink.LinkDel)
	l.addVethPair(b, cable{})
	if link, err = netlink.LinkByName(b.hostEnd()); err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		t.Fatal(err)
	}
	b.addRoutes(t)
	reopened("created again")
}

func TestFailedAttachLeavesNothing(t *testing.T) {
	l := newLab(t)
	b := l.vethPod(cable{})
	before := steadyResources(t)
	if _, err := l.engine.OpenAFPacket(20, port.AFPacketConfig{Name: "none", SetUp: true}); !errors.Is(err,
		port.ErrNoLink) {
		t.Errorf("no such link: %v", err)
	}
	if _, err := l.engine.OpenAFPacket(20, port.AFPacketConfig{Name: "lo", SetUp: true}); !errors.Is(err,
		port.ErrNoLink) {
		t.Errorf("lo: %v", err)
	}
	if _, err := l.engine.OpenAFPacket(b.index, port.AFPacketConfig{Name: b.hostEnd()}); !errors.Is(err,
		forward.ErrPortExists) {
		t.Errorf("a second port: %v", err)
	}
	link, err := netlink.LinkByName(b.hostEnd())
	if err != nil {
		t.Fatal(err)
	}
	if err := l.engine.ClosePort(b.index); err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetDown(link); err != nil {
		t.Fatal(err)
	}
	if _, err := l.engine.OpenAFPacket(20, port.AFPacketConfig{Name: b.hostEnd()}); !errors.Is(err, port.ErrLinkDown) {
		t.Errorf("link that is down: %v", err)
	}
	before["socket"]-- // of the port
	before.wantReleased(t)
}
