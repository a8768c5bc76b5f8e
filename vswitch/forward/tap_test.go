package forward_test

import (
	"errors"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/port"
)

func TestPodsReachEachOtherAndTheirGateway(t *testing.T) {
	l := newLab(t)
	a := l.pod()
	b := l.pod()
	for _, r := range []ping{
		{to: b.v4}, {to: b.v6}, {to: b.v4, size: 1400}, {to: b.v6, size: 1400}, {to: gateway4}, {to: gateway6},
	} {
		a.wantReply(t, r)
	}
	b.wantReply(t, ping{to: a.v4})
	c := l.engine.Counters(a.index)
	if c.RxPackets < 6 || c.TxPackets < 6 || c.RxIP4 < 4 || c.RxIP6 < 3 || c.TxErrors != 0 {
		t.Errorf("counters of a: %+v", c)
	}
}

func TestPodReceivesICMPErrors(t *testing.T) {
	l := newLab(t)
	a := l.pod()
	b := l.pod(func(p *pod, _ *port.TapConfig) { p.mtu = 1300 })
	nowhere4 := netip.MustParseAddr("10.9.9.9")
	nowhere6 := netip.MustParseAddr("fd09::9")
	own6 := netip.MustParseAddr("fd00::ffff")
	for _, c := range []struct {
		rule string
		ping ping
		want icmp.Type
		code int
		from netip.Addr
	}{
		{"TTL exceeded here", ping{to: b.v4, ttl: 1}, ipv4.ICMPTypeTimeExceeded, 0, gateway4},
		{"hop limit exceeded here", ping{to: b.v6, ttl: 1}, ipv6.ICMPTypeTimeExceeded, 0, own6},
		{"TTL 2 passes", ping{to: b.v4, ttl: 2}, ipv4.ICMPTypeEchoReply, 0, b.v4},
		{"no route", ping{to: nowhere4}, ipv4.ICMPTypeDestinationUnreachable, 0, gateway4},
		{"no route in IPv6", ping{to: nowhere6}, ipv6.ICMPTypeDestinationUnreachable, 0, own6},
		{"larger than the MTU with DF", ping{to: b.v4, size: 1400}, ipv4.ICMPTypeDestinationUnreachable, 4, gateway4},
		{"larger than the MTU in IPv6", ping{to: b.v6, size: 1400}, ipv6.ICMPTypePacketTooBig, 0, own6},
		{"exactly the MTU", ping{to: b.v4, size: 1300 - 28}, ipv4.ICMPTypeEchoReply, 0, b.v4},
	} {
		t.Run(c.rule, func(t *testing.T) {
			m, from, err := a.ping(t, c.ping)
			if err != nil {
				t.Fatal(err)
			}
			if m.Type != c.want || m.Code != c.code || from != c.from {
				t.Errorf("got %v code %d from %v, want %v code %d from %v", m.Type, m.Code, from, c.want, c.code,
					c.from)
			}
		})
	}
}

func TestUnknownNeighbourIsResolved(t *testing.T) {
	l := newLab(t)
	a := l.pod()
	b := l.pod(func(p *pod, _ *port.TapConfig) { p.static = false })
	a.wantReply(t, ping{to: b.v4})
	a.wantReply(t, ping{to: b.v6})
	for range 2 {
		ev := <-l.engine.Events()
		if ev.Kind != forward.NeighbourLearned || ev.Interface != b.index || ev.MAC != b.info.HostMAC {
			t.Fatalf("event %+v", ev)
		}
		if err := l.engine.SetNeighbour(ev.Interface, ev.Addr, ev.MAC, false); err != nil {
			t.Fatal(err)
		}
	}
	l.engine.Publish()
	a.wantReply(t, ping{to: b.v6}) // a worker that was in a round has started another one with the new configuration
	a.wantReply(t, ping{to: b.v4})
	requests := slices.DeleteFunc(l.engine.Trace(a.index, 64), func(line string) bool {
		return !strings.Contains(line, "10.1.1.1 > 10.1.1.2 ttl 64, icmp type 8")
	})
	if len(requests) != 2 || !strings.Contains(requests[0], "slow path") ||
		!strings.HasSuffix(requests[1], "sent on interface 2") {
		t.Errorf("want the slow path for the first frame only: %q", requests)
	}
}

func TestSilentNeighbourIsUnreachable(t *testing.T) {
	l := newLab(t)
	a := l.pod()
	b := l.pod(func(p *pod, c *port.TapConfig) {
		p.static = false
		c.Up = true
	})
	silent := netip.MustParseAddr("10.1.1.200")
	key := forward.TableKey{Family: forward.IP4}
	route := forward.Route{Paths: []forward.Path{{Interface: b.index}}}
	if err := l.engine.SetRoute(key, netip.PrefixFrom(silent, 32), route); err != nil {
		t.Fatal(err)
	}
	l.engine.Publish()
	m, from, err := a.ping(t, ping{to: silent, wait: time.Minute})
	if err != nil || m.Type != ipv4.ICMPTypeDestinationUnreachable || m.Code != 1 || from != gateway4 {
		t.Fatalf("got %+v from %v, %v", m, from, err)
	}
}

func TestDeletedTapIsReopened(t *testing.T) {
	l := newLab(t)
	a := l.pod()
	b := l.pod()
	netnstest.Do(t, b.namespace, func() {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			t.Fatal(err)
		}
		if err := netlink.LinkDel(link); err != nil {
			t.Fatal(err)
		}
	})
	if ev := <-l.engine.Events(); ev.Kind != forward.PortDown || ev.Interface != b.index || ev.Err == nil {
		t.Fatalf("event %+v", ev)
	}
	a.wantReply(t, ping{to: gateway4})
	if ev := <-l.engine.Events(); ev.Kind != forward.PortUp || ev.Interface != b.index {
		t.Fatalf("event %+v", ev)
	}
	b.addRoutes(t)
	a.wantReply(t, ping{to: b.v4})
}

func TestClosedPortReleasesItsNamespace(t *testing.T) {
	l := newLab(t)
	a := l.pod()
	b := l.pod()
	// A veth pair is deleted with the namespace of either end.
	there, err := os.Open(b.namespace)
	if err != nil {
		t.Fatal(err)
	}
	witness := &netlink.Veth{
		LinkAttrs:     netlink.LinkAttrs{Name: "witness"},
		PeerName:      "there",
		PeerNamespace: netlink.NsFd(int(there.Fd())),
	}
	if err := netlink.LinkAdd(witness); err != nil {
		t.Fatal(err)
	}
	there.Close()
	netnstest.Remove(t, b.namespace)
	if err := l.engine.ClosePort(b.index); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the namespace goes", func() bool {
		_, err := netlink.LinkByName("witness")
		return errors.As(err, new(netlink.LinkNotFoundError))
	})
	if err := l.engine.ClosePort(b.index); !errors.Is(err, forward.ErrNoPort) {
		t.Errorf("second close: %v", err)
	}
	_, err = l.engine.OpenTap(b.index, port.TapConfig{Namespace: b.namespace, Name: "eth0"})
	if !errors.Is(err, port.ErrNamespaceGone) {
		t.Errorf("open in a deleted namespace: %v", err)
	}
	a.wantReply(t, ping{to: gateway4})
}

func TestTapNameInUseIsRejected(t *testing.T) {
	l := newLab(t)
	a := l.pod()
	before := steadyResources(t)
	_, err := l.engine.OpenTap(9, port.TapConfig{Namespace: a.namespace, Name: "eth0"})
	if !errors.Is(err, port.ErrNameInUse) {
		t.Errorf("second eth0: %v", err)
	}
	if _, err := l.engine.OpenTap(a.index, port.TapConfig{Namespace: a.namespace, Name: "eth1"}); !errors.Is(err,
		forward.ErrPortExists) {
		t.Errorf("second port of an interface: %v", err)
	}
	before.wantReleased(t)
	a.wantReply(t, ping{to: gateway4})
}

func TestTraceShowsPodTraffic(t *testing.T) {
	l := newLab(t)
	a := l.pod()
	b := l.pod()
	a.wantReply(t, ping{to: b.v4})
	a.wantReply(t, ping{to: gateway4})
	lines := l.engine.Trace(a.index, 10)
	if len(lines) == 0 {
		t.Fatal("no trace")
	}
	for _, want := range []string{
		"ip4 10.1.1.1 > 10.1.1.2 ttl 64, icmp type 8 code 0 -> sent on interface 2",
		"ip4 10.1.1.1 > 169.254.1.1 ttl 64, icmp type 8 code 0 -> slow path: local",
	} {
		if !contains(lines, want) {
			t.Errorf("no %q in %q", want, lines)
		}
	}
}

func TestIdleEngineSleeps(t *testing.T) {
	l := newLab(t)
	a := l.pod()
	b := l.pod()
	a.wantReply(t, ping{to: b.v4})
	// A tap that is down does not keep the worker awake.
	if _, err := l.engine.OpenTap(20, port.TapConfig{Namespace: a.namespace, Name: "down"}); err != nil {
		t.Fatal(err)
	}
	var before, after unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &before); err != nil {
		t.Fatal(err)
	}
	if _, _, err := answer(b.listenICMP(t, true), ping{to: b.v4, wait: time.Second}); err == nil {
		t.Fatal("received a frame while idle")
	}
	if err := unix.Getrusage(unix.RUSAGE_SELF, &after); err != nil {
		t.Fatal(err)
	}
	if used := cpu(after) - cpu(before); used > 100e6 {
		t.Errorf("an idle engine used %d ms of CPU", used/1e6)
	}
}

func cpu(r unix.Rusage) int64 { return r.Utime.Nano() + r.Stime.Nano() }
