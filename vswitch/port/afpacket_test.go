package port_test

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/port"
)

// pair is a veth pair with a port on one end, and a raw socket on the other one in a separate namespace.
type pair struct {
	port *port.AFPacket
	peer int
	link netlink.Link
}

func newPair(t *testing.T) pair {
	t.Helper()
	ns := netnstest.New(t)
	there, err := os.Open(ns)
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	link := &netlink.Veth{
		LinkAttrs:     netlink.LinkAttrs{Name: "weft0", MTU: 1500},
		PeerName:      "eth0",
		PeerNamespace: netlink.NsFd(int(there.Fd())),
	}
	if err := netlink.LinkAdd(link); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = netlink.LinkDel(link) })
	p := pair{link: link}
	silence(t, "weft0")
	netnstest.Do(t, ns, func() { p.peer = rawSocket(t, "eth0") })
	t.Cleanup(func() { _ = unix.Close(p.peer) })
	if p.port, err = port.OpenAFPacket(port.AFPacketConfig{
		Name:        "weft0",
		Offload:     true,
		QdiscBypass: true,
		SetUp:       true,
	}); err != nil {
		t.Fatal(err)
	}
	opened := p.port
	t.Cleanup(func() { _ = opened.Close(); opened.Wait() })
	return p
}

// silence stops the kernel's own traffic on a link.
func silence(t *testing.T, name string) {
	t.Helper()
	if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/disable_ipv6", []byte("1"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// rawSocket opens a socket on a link of this namespace, which it sets up without addresses.
func rawSocket(t *testing.T, name string) int {
	t.Helper()
	silence(t, name)
	link, err := netlink.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{
		Protocol: unix.ETH_P_ALL << 8,
		Ifindex:  link.Attrs().Index,
	}); err != nil {
		t.Fatal(err)
	}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10}); err != nil {
		t.Fatal(err)
	}
	return fd
}

// pass sends a frame from the peer until it is received: the link may not be up at first.
func (p pair) pass(t *testing.T, raw []byte, v []*frame.Buffer) *frame.Buffer {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if err := unix.Send(p.peer, raw, 0); err != nil {
			t.Fatal(err)
		}
		n, err := p.port.Receive(v)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range v[:n] {
			if bytes.HasSuffix(b.Bytes(), []byte("knock")) {
				return b
			}
		}
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(p.port.Descriptor()), Events: unix.POLLIN}}, 100); err != nil &&
			!errors.Is(err, unix.EINTR) {
			t.Fatal(err)
		}
	}
	t.Fatal("no frame arrived")
	return nil
}

var plainFrame = []byte(
	"\x02\x00\x00\x00\x00\x09\x02\x00\x00\x00\x00\x01\x88\xb5 a payload of some bytes, so that it is a frame: knock")

// tagged inserts tags between addresses and type.
func tagged(tags string) []byte {
	return append(append(bytes.Clone(plainFrame[:12]), tags...), plainFrame[12:]...)
}

func TestFramesCrossALinkUnchanged(t *testing.T) {
	for rule, raw := range map[string][]byte{
		"to a foreign address":                         plainFrame,
		"with the tag that the kernel took off":        tagged("\x81\x00\x60\x07"),
		"with a service tag":                           tagged("\x88\xa8\x00\x05"),
		"with two tags, of which the kernel takes one": tagged("\x88\xa8\x00\x05\x81\x00\x00\x06"),
		"longer than the MTU by the tag": append(tagged("\x81\x00\x00\x07")[:18],
			append(make([]byte, 1495), "knock"...)...),
		"a tag of priority only, which is a tag as well": tagged("\x81\x00\xe0\x00"),
	} {
		t.Run(rule, func(t *testing.T) {
			p := newPair(t)
			v := make([]*frame.Buffer, 70)
			frame.NewPool(frame.BufferSize, len(v)).Take(v)
			b := p.pass(t, raw, v)
			if !bytes.Equal(b.Bytes(), raw) || b.Virtio != (frame.Virtio{}) {
				t.Fatalf("received %x %+v\nsent     %x", b.Bytes(), b.Virtio, raw)
			}
			const ours = 9 // last byte of the source, because the peer may have repeated its frame
			b.Bytes()[11] = ours
			if n, err := p.port.Transmit([]*frame.Buffer{b}); n != 1 || err != nil {
				t.Fatalf("transmitted %d, %v", n, err)
			}
			n, err := p.port.Receive(v)
			if err != nil || slices.ContainsFunc(v[:n], func(b *frame.Buffer) bool { return b.Bytes()[11] == ours }) {
				t.Errorf("received an own frame: %d, %v", n, err)
			}
			back := make([]byte, 2000)
			n, err = unix.Read(p.peer, back)
			if err != nil || !bytes.HasSuffix(back[:n], []byte("knock")) {
				t.Errorf("received %x, %v", back[:n], err)
			}
		})
	}
}

func TestFrameRefusedByALinkIsEmptied(t *testing.T) {
	p := newPair(t)
	v := make([]*frame.Buffer, 3)
	frame.NewPool(frame.BufferSize, len(v)).Take(v)
	for i, size := range []int{2000, 60, 8} {
		v[i].SetLen(size)
	}
	if n, err := p.port.Transmit(v); n != 1 || err != nil || v[0].Len() != 0 || v[1].Len() != 60 || v[2].Len() != 0 {
		t.Errorf("%d sent, lengths %d, %d and %d, %v", n, v[0].Len(), v[1].Len(), v[2].Len(), err)
	}
}

func TestDeletedLinkIsAnError(t *testing.T) {
	p := newPair(t)
	v := make([]*frame.Buffer, 1)
	frame.NewPool(frame.BufferSize, 1).Take(v)
	if err := netlink.LinkSetDown(p.link); err != nil {
		t.Fatal(err)
	}
	if _, err := p.port.Receive(v); !errors.Is(err, unix.ENETDOWN) {
		t.Errorf("receive: %v", err)
	}
	v[0].SetLen(60)
	if _, err := p.port.Transmit(v); !errors.Is(err, unix.ENETDOWN) {
		t.Errorf("transmit: %v", err)
	}
	if _, err := port.OpenAFPacket(port.AFPacketConfig{Name: "weft0"}); !errors.Is(err, port.ErrLinkDown) {
		t.Errorf("open: %v", err)
	}
}

func TestAFPacketAllocatesNothing(t *testing.T) {
	p := newPair(t)
	v := make([]*frame.Buffer, 100)
	frame.NewPool(frame.BufferSize, len(v)).Take(v)
	moved := 0
	if n := testing.AllocsPerRun(20, func() {
		for range 10 {
			_ = unix.Send(p.peer, plainFrame, 0)
		}
		n, err := p.port.Receive(v)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range v {
			b.SetLen(60)
			b.Virtio = frame.Virtio{}
		}
		sent, _ := p.port.Transmit(v)
		moved += n + sent
	}); n > 0 || moved < 21*100 {
		t.Errorf("%v allocations, %d frames", n, moved)
	}
}

func TestCloseRestoresTheLink(t *testing.T) {
	_ = newPair(t)
	for i := range 10 {
		p, err := port.OpenAFPacket(port.AFPacketConfig{Name: "weft0"})
		if err != nil {
			t.Fatal(err)
		}
		if l, err := netlink.LinkByName("weft0"); err != nil || l.Attrs().Promisc != 2 {
			t.Errorf("two ports are open, but the link has %v, %v", l, err)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		if l, err := netlink.LinkByName("weft0"); err != nil || l.Attrs().Promisc != 1 {
			t.Errorf("port %d is closed, but the link has %v, %v", i, l, err)
		}
		defer p.Wait()
	}
}

func TestWaitReturnsAfterTheSocketIsClosed(t *testing.T) {
	_ = newPair(t)
	before := descriptors(t)
	p, err := port.OpenAFPacket(port.AFPacketConfig{Name: "weft0"})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	p.Wait()
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors were open, now %d", before, after)
	}
}
