package forward_test

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/port"
)

// withQueues gives a pod's tap several queues.
func withQueues(n int) func(*pod, *port.TapConfig) {
	return func(_ *pod, c *port.TapConfig) { c.Queues = n }
}

func TestSeveralQueuesKeepTheOrder(t *testing.T) {
	for name, workers := range map[string]int{"one worker": 1, "a worker for some queues": 3} {
		t.Run(name, func(t *testing.T) {
			l := newLabOf(t, workers)
			a := l.pod(withQueues(4))
			b := l.pod(withQueues(2))
			// Packets that wait in a kernel for neighbour resolution are overtaken by later ones.
			a.wantReply(t, ping{to: gateway4})
			b.wantReply(t, ping{to: gateway4})
			a.sendInOrder(t, b) // before any reply: replies make a kernel choose another queue
			b.wantReply(t, ping{to: a.v6})
			a.transfer(t, b, b.v4, 4<<20)
			b.transfer(t, a, a.v6, 4<<20)
			for _, p := range l.pods {
				if rx, tx := netnstest.Queues(t, p.namespace, "eth0"); rx != tx || rx < 2 {
					t.Errorf("%s has %d and %d queues", p.namespace, rx, tx)
				}
				if len(l.engine.Trace(p.index, 64)) == 0 {
					t.Error("no trace")
				}
			}
		})
	}
}

// sendInOrder sends datagrams of several flows in turn, few enough for any queue, and requires that each flow arrives
// complete and in order.
func (p *pod) sendInOrder(t *testing.T, q *pod) {
	t.Helper()
	const (
		flows = 10
		each  = 15
	)
	var in *net.UDPConn
	netnstest.Do(t, q.namespace, func() {
		var err error
		if in, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(q.v4, 9))); err != nil {
			t.Fatal(err)
		}
	})
	defer in.Close()
	netnstest.Do(t, p.namespace, func() {
		var all []net.Conn
		for range flows {
			c, err := net.Dial("udp4", in.LocalAddr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			all = append(all, c)
		}
		for n := range flows * each {
			if _, err := all[n%flows].Write(binary.BigEndian.AppendUint32(nil, uint32(n/flows))); err != nil {
				t.Fatal(err)
			}
		}
	})
	if err := in.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	next := map[string]uint32{}
	b := make([]byte, 4)
	for n := range flows * each {
		_, from, err := in.ReadFrom(b)
		if err != nil {
			t.Fatalf("%d of %d arrived: %v", n, flows*each, err)
		}
		if number := binary.BigEndian.Uint32(b); number != next[from.String()] {
			t.Errorf("datagram %d from %s, want %d", number, from, next[from.String()])
		}
		next[from.String()]++
	}
}

func TestDeletedTapWithSeveralQueuesIsReopened(t *testing.T) {
	l := newLabOf(t, 2)
	a := l.pod()
	b := l.pod(withQueues(3))
	before := steadyResources(t)
	netnstest.Do(t, b.namespace, func() {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			t.Fatal(err)
		}
		if err := netlink.LinkDel(link); err != nil {
			t.Fatal(err)
		}
	})
	for _, want := range []forward.EventKind{forward.PortDown, forward.PortUp} {
		if ev := <-l.engine.Events(); ev.Kind != want || ev.Interface != b.index {
			t.Fatalf("event %+v", ev)
		}
	}
	b.addRoutes(t)
	a.wantReply(t, ping{to: b.v4})
	b.wantReply(t, ping{to: a.v6})
	if rx, _ := netnstest.Queues(t, b.namespace, "eth0"); rx != 3 {
		t.Errorf("%d queues", rx)
	}
	before.wantReleased(t)
}
