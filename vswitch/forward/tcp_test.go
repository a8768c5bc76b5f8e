package forward_test

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/vswitch/port"
)

// transfer sends size random bytes to an address of q over TCP and compares digests.
func (p *pod) transfer(t *testing.T, q *pod, to netip.Addr, size int64) {
	t.Helper()
	var listener net.Listener
	var conn net.Conn
	netnstest.Do(t, q.namespace, func() {
		var err error
		if listener, err = net.Listen("tcp", netip.AddrPortFrom(to, 5001).String()); err != nil {
			t.Fatal(err)
		}
	})
	defer listener.Close()
	received := make(chan string, 1)
	go func() {
		c, err := listener.Accept()
		if err != nil {
			received <- err.Error()
			return
		}
		defer c.Close()
		h := sha256.New()
		n, err := io.Copy(h, c)
		received <- fmt.Sprintf("%d %x %v", n, h.Sum(nil), err)
	}()
	netnstest.Do(t, p.namespace, func() {
		var err error
		d := net.Dialer{Timeout: time.Minute}
		if conn, err = d.Dial("tcp", netip.AddrPortFrom(to, 5001).String()); err != nil {
			t.Fatal(err)
		}
	})
	h := sha256.New()
	if _, err := io.Copy(io.MultiWriter(conn, h), io.LimitReader(rand.Reader, size)); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if got, want := <-received, fmt.Sprintf("%d %x %v", size, h.Sum(nil), nil); got != want {
		t.Errorf("received %s, sent %s", got, want)
	}
}

func TestTCPArrivesWhole(t *testing.T) {
	const size = 16 << 20
	small := func(p *pod, _ *port.TapConfig) { p.mtu = 1400 }
	plain := func(_ *pod, c *port.TapConfig) { c.NoOffload = true }
	for _, c := range []struct {
		rule string
		b    func(*pod, *port.TapConfig)
		gso  bool
	}{
		{"through GSO", func(*pod, *port.TapConfig) {}, true},
		{"from a tap without offloads", plain, true},
		{"after path MTU discovery", small, true},
	} {
		t.Run(c.rule, func(t *testing.T) {
			l := newLab(t)
			a := l.pod()
			b := l.pod(c.b)
			for _, to := range []netip.Addr{b.v4, b.v6} {
				a.transfer(t, b, to, size)
			}
			b.transfer(t, a, a.v4, size/4)
			n := l.engine.Counters(a.index)
			if whole := n.RxBytes/n.RxPackets > 2000; whole != c.gso {
				t.Errorf("average frame of %d bytes; drops %v", n.RxBytes/n.RxPackets, l.engine.Drops())
			}
		})
	}
}

func contains(lines []string, part string) bool {
	return strings.Contains(strings.Join(lines, "\n"), part)
}
