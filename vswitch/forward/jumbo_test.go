package forward_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/port"
)

const jumbo = frame.MaxMTU

// largeTap makes a pod's tap one of the largest MTU.
func largeTap(p *pod, c *port.TapConfig) {
	p.mtu = jumbo
	c.HostMTU = jumbo
}

// The kernels of two pods exchange packets of exactly the largest MTU that no router may fragment. Those to a pod whose
// MAC the dataplane does not know take the slow path.
func TestInterfacesCarryJumboPackets(t *testing.T) {
	tap := func(l *lab) *pod { return l.pod(largeTap) }
	unknownTap := func(l *lab) *pod {
		return l.pod(largeTap, func(p *pod, _ *port.TapConfig) { p.static = false })
	}
	veth := func(l *lab) *pod { return l.vethPod(cable{mtu: jumbo}) }
	memif := func(l *lab) *pod {
		return l.memifPod(func(p *pod) { p.mtu = jumbo })
	}
	for _, c := range []struct {
		rule string
		a, b func(*lab) *pod
	}{
		{"tap to tap", tap, tap},
		{"tap to a tap with an unknown MAC", tap, unknownTap},
		{"veth to veth", veth, veth},
		{"veth without offloads to tap", func(l *lab) *pod { return l.vethPod(cable{mtu: jumbo, noOffload: true}) }, tap},
		{"tap to memif", tap, memif},
		{"memif to memif", memif, memif},
	} {
		t.Run(c.rule, func(t *testing.T) {
			l := newLab(t)
			a := c.a(l)
			b := c.b(l)
			l.exchange(t, a, b, jumbo)
		})
	}
}

// The nodes have cards of an MTU of 9700: the headers of tunnels over IPv4 take 50 bytes.
func TestTunnelsCarryJumboPackets(t *testing.T) {
	const wire = 9700
	first, second := nodesOf(t, wire, jumbo)
	a := first.pod(largeTap)
	b := second.pod(largeTap)
	first.exchange(t, a, b, jumbo)
}

// jumboWay is the way of packets between two pods.
type jumboWay struct {
	from, at *pod
	to       netip.Addr
}

// exchange sends datagrams that make packets of a size from each of two pods to the other.
func (l *lab) exchange(t *testing.T, a, b *pod, size int) {
	t.Helper()
	for _, w := range []jumboWay{{a, b, b.v4}, {b, a, a.v4}, {a, b, b.v6}, {b, a, a.v6}} {
		for range 3 {
			if err := sendWhole(t, w, size); err != nil {
				t.Errorf("%d bytes to %v: %v; drops %v", size, w.to, err, l.engine.Drops())
			}
		}
		if err := sendWhole(t, w, size+1); err == nil {
			t.Errorf("a packet of %d bytes to %v passed", size+1, w.to)
		}
	}
}

// sendWhole sends a packet with DF, and compares what arrives.
func sendWhole(t *testing.T, w jumboWay, size int) error {
	t.Helper()
	data := make([]byte, size-8-headerOf(w.to))
	_, _ = rand.Read(data) // it never fails
	var in net.PacketConn
	netnstest.Do(t, w.at.namespace, func() {
		var err error
		if in, err = net.ListenPacket("udp", netip.AddrPortFrom(w.to, 0).String()); err != nil {
			t.Fatal(err)
		}
	})
	defer in.Close()
	dialer := net.Dialer{Control: func(_, _ string, c syscall.RawConn) (err error) {
		if control := c.Control(func(fd uintptr) { err = probing(int(fd), w.to) }); control != nil {
			return control
		}
		return err
	}}
	var out net.Conn
	netnstest.Do(t, w.from.namespace, func() {
		var err error
		if out, err = dialer.DialContext(context.Background(), "udp", in.LocalAddr().String()); err != nil {
			t.Fatal(err)
		}
	})
	defer out.Close()
	if _, err := out.Write(data); err != nil {
		return err
	}
	if err := in.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 1<<16)
	n, _, err := in.ReadFrom(got)
	if err == nil && !bytes.Equal(got[:n], data) {
		t.Errorf("%d bytes arrived of %d, or others", n, len(data))
	}
	return err
}

func headerOf(a netip.Addr) int {
	if a.Is4() {
		return 20
	}
	return 40
}

// probing makes the kernel send packets with DF, and not fragment them itself.
func probing(fd int, to netip.Addr) error {
	if to.Is4() {
		return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE)
	}
	return unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE)
}
