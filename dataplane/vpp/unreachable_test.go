package vpp

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/wire"
)

func TestPingToAnUnreachableAddressIsAnsweredAtOnce(t *testing.T) {
	l := newWholeLab(t, newRuins(t).socket, nil)
	path := netnstest.New(t)
	l.mustCommit(append(append(ground(), podOf(t, path)...),
		routeTo("10.1.0.0/16", wire.Path{Type: wire.PathUnreachable}),
		routeTo("fd00:1::/64", wire.Path{Type: wire.PathUnreachable}),
		// Behind the more general route packets would be gone for good.
		routeTo("0.0.0.0/0", wire.Path{Interface: "far"}), routeTo("::/0", wire.Path{Interface: "far"}))...)
	for to, want := range map[string]string{
		"10.1.7.7":   "destination unreachable 1 from 169.254.1.1",
		"fd00:1::77": "destination unreachable 0 from fd00::1",
	} {
		_, gateway, _ := strings.Cut(want, "from ")
		for try := 0; strings.HasPrefix(answerTo(t, path, netip.MustParseAddr(gateway)), "nothing"); try++ {
			if try == 3 {
				t.Fatalf("the link to %s never came up", gateway)
			}
		}
		times, wait := dataplane.Tries()
		got := ""
		for try := 0; try < times && (try == 0 || strings.HasPrefix(got, "nothing")); try++ {
			got = answerWithin(t, path, netip.MustParseAddr(to), wait)
		}
		if got != want {
			t.Errorf("ping %s: %s, want %s", to, got, want)
		}
	}
}

// answerTo sends one echo request and describes what comes back.
func answerTo(t *testing.T, path string, to netip.Addr) string {
	t.Helper()
	return answerWithin(t, path, to, time.Minute)
}

func answerWithin(t *testing.T, path string, to netip.Addr, limit time.Duration) string {
	t.Helper()
	network := "ip4:icmp"
	protocol := 1
	request := icmp.Type(ipv4.ICMPTypeEcho)
	if to.Is6() {
		network = "ip6:ipv6-icmp"
		protocol = 58
		request = ipv6.ICMPTypeEchoRequest
	}
	var conn *icmp.PacketConn
	var err error
	netnstest.Do(t, path, func() { conn, err = icmp.ListenPacket(network, "") })
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	b, err := (&icmp.Message{Type: request, Body: &icmp.Echo{ID: 7, Data: []byte("is a host there?")}}).Marshal(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.WriteTo(b, &net.IPAddr{IP: to.AsSlice()}); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(limit)); err != nil {
		t.Fatal(err)
	}
	for {
		answer := make([]byte, 1500)
		n, from, err := conn.ReadFrom(answer)
		if err != nil {
			return "nothing: " + err.Error()
		}
		m, err := icmp.ParseMessage(protocol, answer[:n])
		if err != nil {
			t.Fatal(err)
		}
		switch m.Type {
		case ipv6.ICMPTypeRouterSolicitation, ipv6.ICMPTypeNeighborSolicitation, ipv6.ICMPTypeNeighborAdvertisement,
			ipv6.ICMPTypeVersion2MulticastListenerReport:
			continue
		}
		return fmt.Sprintf("%s %d from %s", m.Type, m.Code, from)
	}
}
