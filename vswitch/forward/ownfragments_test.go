package forward_test

import (
	"bytes"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// The pod's kernel fragments the request and reassembles the answer.
func TestLongPingToAGatewayIsAnswered(t *testing.T) {
	l := newLab(t)
	tap := l.pod()
	veth := l.vethPod(cable{})
	for _, p := range []*pod{tap, veth} {
		for _, to := range []netip.Addr{gateway4, netip.MustParseAddr("fd00::ffff"), gateway6} {
			for _, size := range []int{1400, 2000, 9000} {
				p.wantEcho(t, to, size)
			}
		}
	}
	if drops := l.engine.Drops(); drops["slow-path/packet too long"] != 0 || drops["slow-path/fragments missing"] != 0 {
		t.Errorf("drops %v", drops)
	}
}

// wantEcho sends a request with data of its own, and compares that of the reply.
func (p *pod) wantEcho(t *testing.T, to netip.Addr, size int) {
	t.Helper()
	c := p.listenICMP(t, to.Is4())
	defer c.Close()
	if to.Is4() {
		allowFragments(t, c)
	}
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(i*11 + i>>8)
	}
	m := icmp.Message{Type: ipv4.ICMPTypeEcho, Body: &icmp.Echo{ID: 7, Seq: 1, Data: data}}
	if !to.Is4() {
		m.Type = ipv6.ICMPTypeEchoRequest
	}
	b, err := m.Marshal(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.WriteTo(b, &net.IPAddr{IP: to.AsSlice(), Zone: zone(p, to)}); err != nil {
		t.Fatal(err)
	}
	got, from, err := answer(c, ping{to: to, wait: time.Minute})
	if err != nil {
		t.Fatalf("%d bytes to %v: %v", size, to, err)
	}
	e, ok := got.Body.(*icmp.Echo)
	if !ok || from != to || !bytes.Equal(e.Data, data) {
		t.Errorf("%d bytes to %v: %v from %v, or other data", size, to, got.Type, from)
	}
}
