package agent

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
	"github.com/weftnet/weft/test/programs"
)

func TestUnusedAddressOfThePoolIsUnreachableAtOnce(t *testing.T) {
	l := newLab(t, programs.Build(t))
	p := l.pod("a")
	l.cni("ADD", p, nil)
	for _, tt := range []struct{ from, netns, to, want string }{
		{"the pod", p.Netns, "10.1.0.200", "destination unreachable 1 from 169.254.1.1"},
		{"the pod", p.Netns, "fd00:10:1::200", "destination unreachable 0 from fd77:6566:7402::1"},
		{"the node", "", "10.1.0.200", "destination unreachable 1 from 169.254.1.1"},
		{"the node", "", "fd00:10:1::200", "destination unreachable 0 from fd77:6566:7402::1"},
	} {
		t.Run(tt.from+" pings "+tt.to, func(t *testing.T) {
			if got := answerTo(t, tt.netns, netip.MustParseAddr(tt.to)); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}

// answerTo sends echo requests, as many as Tries says, and describes the response.
func answerTo(t *testing.T, netns string, to netip.Addr) string {
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
	open := func() { conn, err = icmp.ListenPacket(network, "") }
	if netns == "" {
		open()
	} else {
		netnstest.Do(t, netns, open)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	b, err := (&icmp.Message{Type: request, Body: &icmp.Echo{ID: 7, Data: []byte("echo request")}}).Marshal(nil)
	if err != nil {
		t.Fatal(err)
	}
	times, wait := dataplane.Tries()
	output := ""
	for range times {
		if err := conn.SetDeadline(time.Now().Add(wait)); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.WriteTo(b, &net.IPAddr{IP: to.AsSlice()}); err != nil {
			t.Fatal(err)
		}
		if output = failure(t, conn, protocol); !strings.HasPrefix(output, "nothing") {
			break
		}
	}
	return output
}

// failure waits for an ICMP error.
func failure(t *testing.T, conn *icmp.PacketConn, protocol int) string {
	t.Helper()
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
		case ipv4.ICMPTypeDestinationUnreachable, ipv4.ICMPTypeTimeExceeded,
			ipv6.ICMPTypeDestinationUnreachable, ipv6.ICMPTypeTimeExceeded:
			// its zone is a link of another namespace
			return fmt.Sprintf("%s %d from %s", m.Type, m.Code, from.(*net.IPAddr).IP)
		}
	}
}
