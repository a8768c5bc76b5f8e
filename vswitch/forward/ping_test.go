package forward_test

import (
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netnstest"
)

// ping is an echo request of a pod's kernel.
type ping struct {
	to   netip.Addr
	size int
	ttl  int
	wait time.Duration
	// fragment clears DF.
	fragment bool
}

// ping sends a request and returns the first answer: an echo reply, or an ICMP error, with its sender.
func (p *pod) ping(t *testing.T, r ping) (*icmp.Message, netip.Addr, error) {
	t.Helper()
	c := p.listenICMP(t, r.to.Is4())
	defer c.Close()
	if r.ttl != 0 {
		setTTL(c, r.to.Is4(), r.ttl)
	}
	if r.fragment {
		allowFragments(t, c)
	}
	if r.wait == 0 {
		r.wait = time.Minute
	}
	body := &icmp.Echo{ID: 7, Seq: 1, Data: make([]byte, r.size)}
	m := icmp.Message{Type: ipv4.ICMPTypeEcho, Body: body}
	if !r.to.Is4() {
		m.Type = ipv6.ICMPTypeEchoRequest
	}
	b, err := m.Marshal(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.WriteTo(b, &net.IPAddr{IP: r.to.AsSlice(), Zone: zone(p, r.to)}); err != nil {
		return nil, netip.Addr{}, err
	}
	return answer(c, r)
}

func (p *pod) listenICMP(t *testing.T, v4 bool) *icmp.PacketConn {
	t.Helper()
	network := "ip4:icmp"
	address := "0.0.0.0"
	if !v4 {
		network = "ip6:ipv6-icmp"
		address = "::"
	}
	var c *icmp.PacketConn
	netnstest.Do(t, p.namespace, func() {
		var err error
		if c, err = icmp.ListenPacket(network, address); err != nil {
			t.Fatal(err)
		}
	})
	return c
}

// allowFragments clears DF in packets of the socket.
func allowFragments(t *testing.T, c *icmp.PacketConn) {
	t.Helper()
	raw, err := c.IPv4PacketConn().PacketConn.(syscall.Conn).SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DONT)
		})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func setTTL(c *icmp.PacketConn, v4 bool, ttl int) {
	if v4 {
		_ = c.IPv4PacketConn().SetTTL(ttl)
		return
	}
	_ = c.IPv6PacketConn().SetHopLimit(ttl)
}

func zone(p *pod, a netip.Addr) string {
	if a.IsLinkLocalUnicast() && a.Is6() {
		return fmt.Sprint(p.info.Ifindex)
	}
	return ""
}

// answer skips other messages, such as the kernel's neighbour discovery.
func answer(c *icmp.PacketConn, r ping) (*icmp.Message, netip.Addr, error) {
	_ = c.SetReadDeadline(time.Now().Add(r.wait))
	protocol := 1
	if !r.to.Is4() {
		protocol = 58
	}
	b := make([]byte, 1<<16)
	for {
		n, from, err := c.ReadFrom(b)
		if err != nil {
			return nil, netip.Addr{}, err
		}
		m, err := icmp.ParseMessage(protocol, b[:n])
		if err != nil {
			return nil, netip.Addr{}, err
		}
		switch m.Type {
		case ipv6.ICMPTypeNeighborSolicitation, ipv6.ICMPTypeNeighborAdvertisement, ipv6.ICMPTypeEchoRequest,
			ipv4.ICMPTypeEcho, ipv6.ICMPTypeRouterSolicitation, ipv6.ICMPTypeMulticastListenerReport,
			ipv6.ICMPTypeVersion2MulticastListenerReport:
			continue
		}
		a, _ := netip.AddrFromSlice(from.(*net.IPAddr).IP)
		return m, a.Unmap(), nil
	}
}

// wantReply fails the test without an echo reply.
func (p *pod) wantReply(t *testing.T, r ping) {
	t.Helper()
	m, from, err := p.ping(t, r)
	if err != nil {
		t.Fatalf("ping %v from %v: %v", r.to, p.v4, err)
	}
	if m.Type != ipv4.ICMPTypeEchoReply && m.Type != ipv6.ICMPTypeEchoReply || from != r.to {
		t.Fatalf("ping %v from %v: got %v from %v", r.to, p.v4, m.Type, from)
	}
}

// sendFrom sends a datagram from an address of the pod.
func (p *pod) sendFrom(t *testing.T, from, to netip.Addr) {
	t.Helper()
	netnstest.Do(t, p.namespace, func() {
		c, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0)),
			net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, 9)))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte("it is me")); err != nil {
			t.Fatal(err)
		}
	})
}
