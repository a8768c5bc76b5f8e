package port_test

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/port"
)

func open(t *testing.T, c port.TapConfig) *port.Tap {
	t.Helper()
	tap, err := port.OpenTap(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tap.Close(); tap.Wait() })
	return tap
}

// link returns a link as the kernel shows it, or nil.
func link(t *testing.T, namespace, name string) (l netlink.Link, addresses []string) {
	t.Helper()
	netnstest.Do(t, namespace, func() {
		var err error
		l, err = netlink.LinkByName(name)
		if errors.As(err, new(netlink.LinkNotFoundError)) {
			l = nil
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		all, err := netlink.AddrList(l, netlink.FAMILY_ALL)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range all {
			addresses = append(addresses, a.IPNet.String())
		}
	})
	return l, addresses
}

func TestTapHasItsConfiguration(t *testing.T) {
	ns := namespace(t)
	mac := frame.MAC{2, 1, 2, 3, 4, 5}
	tap := open(t, port.TapConfig{
		Namespace: ns, Name: "eth7", HostMAC: mac, HostMTU: 1400, Up: true,
		HostAddresses: []netip.Prefix{netip.MustParsePrefix("10.1.1.1/32"), netip.MustParsePrefix("fd00::1/128")},
	})
	l, addresses := link(t, ns, "eth7")
	if l == nil {
		t.Fatal("no link")
	}
	a := l.Attrs()
	if a.HardwareAddr.String() != mac.String() || a.MTU != 1400 || a.Flags&net.FlagUp == 0 || l.Type() != "tuntap" {
		t.Errorf("link %+v", a)
	}
	if !slices.Contains(addresses, "10.1.1.1/32") || !slices.Contains(addresses, "fd00::1/128") {
		t.Errorf("addresses %v", addresses)
	}
	want := port.TapInfo{Name: "eth7", Ifindex: a.Index, HostMAC: mac, HostMTU: 1400, Offload: tap.Info().Offload}
	if tap.Info() != want || !want.Offload.Checksum || !want.Offload.TCP {
		t.Errorf("info %+v", tap.Info())
	}
	if own, _ := link(t, "/proc/self/ns/net", "eth7"); own != nil {
		t.Error("it is in our own namespace, too")
	}
}

func TestKernelNamesATapWithoutAName(t *testing.T) {
	ns := namespace(t)
	tap := open(t, port.TapConfig{Namespace: ns})
	l, _ := link(t, ns, tap.Info().Name)
	if l == nil || !strings.HasPrefix(tap.Info().Name, "tap") || tap.Info().HostMAC.IsZero() ||
		l.Attrs().Flags&net.FlagUp != 0 {
		t.Errorf("info %+v", tap.Info())
	}
}

func TestClosedTapIsDeleted(t *testing.T) {
	ns := namespace(t)
	tap, err := port.OpenTap(port.TapConfig{Namespace: ns, Name: "eth0"})
	if err != nil {
		t.Fatal(err)
	}
	if err := tap.Close(); err != nil {
		t.Fatal(err)
	}
	if l, _ := link(t, ns, "eth0"); l != nil {
		t.Error("still there")
	}
	tap.Wait()
}

// TestNameOfAClosedTapIsFreeAtOnce has no pause between the taps: the kernel still deletes one when the next is
// created.
func TestNameOfAClosedTapIsFreeAtOnce(t *testing.T) {
	ns := namespace(t)
	before := descriptors(t)
	var closed []*port.Tap
	for i := range 50 {
		tap, err := port.OpenTap(port.TapConfig{Namespace: ns, Name: "eth0", Up: true, Queues: 1 + i%2})
		if err != nil {
			t.Fatalf("tap %d: %v", i, err)
		}
		if err := tap.Close(); err != nil {
			t.Fatalf("tap %d: %v", i, err)
		}
		if l, _ := link(t, ns, "eth0"); l != nil {
			t.Fatalf("tap %d is still there", i)
		}
		closed = append(closed, tap)
	}
	for _, tap := range closed {
		tap.Wait()
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors were open, now %d", before, after)
	}
}

func TestMovedAndRenamedTapIsClosed(t *testing.T) {
	ns := namespace(t)
	other := namespace(t)
	tap, err := port.OpenTap(port.TapConfig{Namespace: ns, Name: "eth0"})
	if err != nil {
		t.Fatal(err)
	}
	there, err := os.Open(other)
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	netnstest.Do(t, ns, func() {
		l, err := netlink.LinkByName("eth0")
		if err == nil {
			err = errors.Join(netlink.LinkSetName(l, "mine"), netlink.LinkSetNsFd(l, int(there.Fd())))
		}
		if err != nil {
			t.Error(err)
		}
	})
	if l, _ := link(t, other, "mine"); l == nil {
		t.Fatal("the tap was not moved")
	}
	if err := tap.Close(); err != nil {
		t.Fatal(err)
	}
	if l, _ := link(t, other, "mine"); l != nil {
		t.Error("still there")
	}
	tap.Wait()
}

func TestFailedOpenOfATapLeavesNothing(t *testing.T) {
	ns := namespace(t)
	file := t.TempDir() + "/file"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	open(t, port.TapConfig{Namespace: ns, Name: "taken"})
	for _, c := range []struct {
		rule   string
		config port.TapConfig
		want   error
	}{
		{"name of a tap", port.TapConfig{Namespace: ns, Name: "taken"}, port.ErrNameInUse},
		{"name of another link", port.TapConfig{Namespace: ns, Name: "lo"}, port.ErrNameInUse},
		{"no such namespace", port.TapConfig{Namespace: file + "x", Name: "eth0"}, port.ErrNamespaceGone},
		{"not a namespace", port.TapConfig{Namespace: file, Name: "eth0"}, port.ErrNamespaceGone},
		{"name too long", port.TapConfig{Namespace: ns, Name: "sixteen-bytes-xx"}, nil},
		{"invalid name", port.TapConfig{Namespace: ns, Name: "a/b"}, nil},
		{"invalid MTU", port.TapConfig{Namespace: ns, Name: "eth0", HostMTU: 1 << 20}, nil},
		{"a multicast MAC", port.TapConfig{Namespace: ns, Name: "eth0", HostMAC: frame.MAC{1}}, nil},
		{"an address twice", port.TapConfig{Namespace: ns, Name: "eth0", HostAddresses: []netip.Prefix{
			netip.MustParsePrefix("10.0.0.1/32"), netip.MustParsePrefix("10.0.0.1/32"),
		}}, nil},
	} {
		t.Run(c.rule, func(t *testing.T) {
			before := descriptors(t)
			tap, err := port.OpenTap(c.config)
			if err == nil || tap != nil || c.want != nil && !errors.Is(err, c.want) ||
				c.want == nil && errors.Is(err, port.ErrNameInUse) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			if l, _ := link(t, ns, "eth0"); l != nil {
				t.Error("a link is left")
			}
			if after := descriptors(t); after != before {
				t.Errorf("%d descriptors were open, now %d", before, after)
			}
		})
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

func TestFramesCrossATapInBothDirections(t *testing.T) {
	ns := namespace(t)
	tap := open(t, port.TapConfig{
		Namespace:     ns,
		Name:          "eth0",
		Up:            true,
		HostAddresses: []netip.Prefix{netip.MustParsePrefix("10.1.1.1/24")},
	})
	pool := frame.NewPool(frame.BufferSize, 4)
	v := make([]*frame.Buffer, 4)
	pool.Take(v)
	request := make([]byte, frame.EthernetLen+frame.ARPLen)
	mac := frame.MAC{2, 0, 0, 0, 0, 9}
	frame.PutEthernet(request, frame.Broadcast, mac, frame.TypeARP)
	frame.PutARP(request[frame.EthernetLen:], frame.ARPFields{
		Operation: frame.ARPRequest,
		SenderMAC: mac,
		Sender:    netip.MustParseAddr("10.1.1.2"),
		Target:    netip.MustParseAddr("10.1.1.1"),
	})
	v[0].SetLen(copy(v[0].Room(), request))
	if n, err := tap.Transmit(v[:1]); n != 1 || err != nil {
		t.Fatalf("transmitted %d, %v", n, err)
	}
	deadline := time.Now().Add(time.Minute)
	for time.Now().Before(deadline) {
		n, err := tap.Receive(v)
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(v[:n], func(b *frame.Buffer) bool {
			return answers(b.Bytes(), tap.Info().HostMAC, mac)
		}) {
			return
		}
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(tap.Descriptor()), Events: unix.POLLIN}}, 1000); err != nil &&
			err != unix.EINTR {
			t.Fatal(err)
		}
	}
	t.Error("the kernel did not answer")
}

// answers reports whether b is an ARP reply with this sender and receiver.
func answers(b []byte, from, to frame.MAC) bool {
	e := frame.Ethernet(b)
	a, err := frame.ParseARP(e.Payload())
	return err == nil && e.Type() == frame.TypeARP && a.Operation() == frame.ARPReply && a.SenderMAC() == from &&
		e.Destination() == to
}

func TestFrameRefusedByATapIsEmptied(t *testing.T) {
	ns := namespace(t)
	tap := open(t, port.TapConfig{Namespace: ns, Name: "eth0", Up: true})
	pool := frame.NewPool(frame.BufferSize, 2)
	v := make([]*frame.Buffer, 2)
	pool.Take(v)
	for _, b := range v {
		b.SetLen(60)
	}
	v[0].Virtio = frame.Virtio{GSOType: 99}
	if n, err := tap.Transmit(v); n != 1 || err != nil || v[0].Len() != 0 || v[1].Len() != 60 {
		t.Errorf("%d sent, lengths %d and %d, %v", n, v[0].Len(), v[1].Len(), err)
	}
}

func TestDeletedTapIsAnError(t *testing.T) {
	ns := namespace(t)
	tap := open(t, port.TapConfig{Namespace: ns, Name: "eth0", Up: true})
	netnstest.Do(t, ns, func() {
		l, err := netlink.LinkByName("eth0")
		if err != nil {
			t.Fatal(err)
		}
		if err := netlink.LinkDel(l); err != nil {
			t.Fatal(err)
		}
	})
	v := make([]*frame.Buffer, 1)
	frame.NewPool(frame.BufferSize, 1).Take(v)
	if _, err := tap.Receive(v); !errors.Is(err, unix.EBADFD) {
		t.Errorf("receive: %v", err)
	}
	v[0].SetLen(60)
	if _, err := tap.Transmit(v); !errors.Is(err, unix.EBADFD) {
		t.Errorf("transmit: %v", err)
	}
}
