package forward_test

import (
	"net"
	"net/netip"
	"testing"

	"github.com/weftnet/weft/internal/netnstest"
)

// sendFrom sends a datagram from an address of the pod.
func (p *pod) sendFrom(t *testing.T, from, to netip.Addr) {
	t.Helper()
	netnstest.Do(t, p.namespace, func() {
		c, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0)), net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, 9)))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte("it is me")); err != nil {
			t.Fatal(err)
		}
	})
}
