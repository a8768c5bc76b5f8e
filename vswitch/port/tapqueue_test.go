package port_test

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/port"
)

// All datagrams fit into one queue of the kernel.
const (
	flows  = 32
	ofFlow = 15
)

func TestTapHasItsQueues(t *testing.T) {
	ns := namespace(t)
	before := descriptors(t)
	for _, want := range []int{1, 2, 16} {
		tap, err := port.OpenTap(port.TapConfig{Namespace: ns, Name: "eth0", Queues: want, Up: true})
		if err != nil {
			t.Fatal(err)
		}
		if rx, tx := netnstest.Queues(t, ns, "eth0"); rx != want || tx != want || len(tap.ExtraQueues()) != want-1 {
			t.Errorf("kernel has %d and %d queues, tap has %d extra ones, want %d", rx, tx, len(tap.ExtraQueues()),
				want)
		}
		if err := tap.Close(); err != nil {
			t.Error(err)
		}
		if l, _ := link(t, ns, "eth0"); l != nil {
			t.Error("the tap is still there")
		}
		tap.Wait()
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors were open, now %d", before, after)
	}
}

func TestTapWithTooManyQueuesLeavesNothing(t *testing.T) {
	ns := namespace(t)
	before := descriptors(t)
	if tap, err := port.OpenTap(port.TapConfig{Namespace: ns, Name: "eth0", Queues: 257}); err == nil {
		_ = tap.Close()
		t.Fatal("tap opened with too many queues")
	}
	if l, _ := link(t, ns, "eth0"); l != nil || descriptors(t) != before {
		t.Errorf("resources left: link %v, %d descriptors", l, descriptors(t)-before)
	}
}

func TestFlowsOverSeveralQueuesStayInOrder(t *testing.T) {
	ns := namespace(t)
	tap := open(t, port.TapConfig{
		Namespace:     ns,
		Name:          "eth0",
		Queues:        4,
		Up:            true,
		HostAddresses: []netip.Prefix{netip.MustParsePrefix("10.1.1.1/24")},
	})
	netnstest.Do(t, ns, func() {
		neighbour := netlink.Neigh{LinkIndex: tap.Info().Ifindex, State: netlink.NUD_PERMANENT,
			IP: net.IPv4(10, 1, 1, 2), HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 9}}
		if err := netlink.NeighAdd(&neighbour); err != nil {
			t.Error(err)
		}
	})
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		netnstest.Do(t, ns, func() { sendFlows(t) })
	}()
	got := arrivals{next: map[uint16]uint32{}, by: map[uint16]int{}}
	got.await(t, append([]port.TapQueue{tap.TapQueue}, tap.ExtraQueues()...))
	<-sent
	used := map[int]bool{}
	for _, queue := range got.by {
		used[queue] = true
	}
	if len(got.next) != flows || len(used) < 2 {
		t.Errorf("%d of %d flows arrived by %d queues", len(got.next), flows, len(used))
	}
}

// sendFlows sends the numbered datagrams of all flows in turn.
func sendFlows(t *testing.T) {
	var all []net.Conn
	for range flows {
		c, err := net.Dial("udp", "10.1.1.2:9")
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		all = append(all, c)
	}
	for n := range uint32(ofFlow) {
		for _, c := range all {
			if _, err := c.Write(binary.BigEndian.AppendUint32(nil, n)); err != nil {
				t.Error(err)
			}
		}
	}
}

// arrivals are the received datagrams by flow, which is the source port.
type arrivals struct {
	total int
	next  map[uint16]uint32 // next expected number
	by    map[uint16]int    // the queue
}

// await receives until all datagrams have arrived.
func (a *arrivals) await(t *testing.T, queues []port.TapQueue) {
	t.Helper()
	v := make([]*frame.Buffer, 64)
	frame.NewPool(frame.BufferSize, len(v)).Take(v)
	var polled []unix.PollFd
	for _, q := range queues {
		polled = append(polled, unix.PollFd{Fd: int32(q.Descriptor()), Events: unix.POLLIN})
	}
	for deadline := time.Now().Add(time.Minute); a.total < flows*ofFlow && time.Now().Before(deadline); {
		for i, q := range queues {
			n, err := q.Receive(v)
			if err != nil {
				t.Fatal(err)
			}
			a.take(t, i, v[:n])
		}
		if _, err := unix.Poll(polled, 1000); err != nil && err != unix.EINTR {
			t.Fatal(err)
		}
	}
}

// take requires that the datagrams of a flow arrive in order, from one queue.
func (a *arrivals) take(t *testing.T, queue int, v []*frame.Buffer) {
	t.Helper()
	for _, b := range v {
		flow, number, is := datagram(b.Bytes())
		if !is {
			continue
		}
		if by, known := a.by[flow]; known && by != queue || number != a.next[flow] {
			t.Errorf("datagram %d of flow %d by queue %d; previous one by %d, want datagram %d", number, flow, queue,
				by, a.next[flow])
		}
		a.total++
		a.next[flow]++
		a.by[flow] = queue
	}
}

// datagram parses a datagram of sendFlows.
func datagram(b []byte) (flow uint16, number uint32, is bool) {
	if len(b) < 46 || frame.Ethernet(b).Type() != frame.TypeIPv4 || b[23] != frame.ProtocolUDP ||
		binary.BigEndian.Uint16(b[36:]) != 9 {
		return 0, 0, false
	}
	return binary.BigEndian.Uint16(b[34:]), binary.BigEndian.Uint32(b[42:]), true
}
