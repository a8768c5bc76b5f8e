package forward_test

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netnstest"
)

// A pod's kernel leaves the segmentation of its tunnels to the veth, if the agent or the pod has not turned that off.
// The kernels of the pods judge: a stall ends by the deadline.
func TestTunnelsOfPodsCarryBulk(t *testing.T) {
	for _, path := range paths {
		for _, o := range overlays() {
			t.Run(path.name+"/"+o.name, func(t *testing.T) {
				a, b := path.pods(t)
				o.tunnel(t, a, b)
				for _, way := range []struct {
					from, to *pod
					address  string
				}{{a, b, "10.77.0.2"}, {b, a, "10.77.0.1"}} {
					to := netip.MustParseAddr(way.address)
					way.from.bulk(t, way.to, to, "tcp")
					if path.segments() {
						way.from.segments(t, way.to, to)
					}
				}
			})
		}
	}
}

// Without tunnels, as a control, and with SCTP, whose CRC the kernel leaves to the veth.
func TestPathsCarryBulk(t *testing.T) {
	for _, path := range append(slices.Clone(paths), crcPaths...) {
		for _, family := range []string{"IPv4", "IPv6"} {
			t.Run(path.name+"/"+family, func(t *testing.T) {
				a, b := path.pods(t)
				to := b.v4
				if family == "IPv6" {
					to = b.v6
				}
				a.bulk(t, b, to, "tcp")
				if path.segments() {
					a.segments(t, b, to)
				}
				if !path.everything {
					t.Run("SCTP", func(t *testing.T) { a.sctp(t, b, to) })
				}
			})
		}
	}
}

// path is a way between two pods.
type path struct {
	name       string
	near       func(*lab) *pod
	far        func(*lab) *pod
	otherNode  bool
	everything bool // a veth has offloads that the agent turns off
}

// segments reports whether UDP_SEGMENT arrives: before Linux 6.2 the kernel drops it at a veth with this offload.
func (p path) segments() bool { return !p.everything || expressesUDP() }

// pods makes the ends. A packet that is dropped because the dataplane cannot cut it fails the test at its end: TCP
// repeats it by other packets, so it would only be slow.
func (p path) pods(t *testing.T) (a, b *pod) {
	t.Helper()
	var one, two *lab
	if p.otherNode {
		one, two = nodes(t)
	} else {
		one = newLab(t)
		two = one
	}
	t.Cleanup(func() {
		for _, l := range slices.Compact([]*lab{one, two}) {
			for _, name := range []string{
				"virtio-input/bad virtio header", "af-packet-input/segmentation that virtio cannot express",
			} {
				if n := l.engine.Drops()[name]; n != 0 && !t.Skipped() {
					t.Errorf("%d packets: %s", n, name)
				}
			}
		}
	})
	return p.near(one), p.far(two)
}

func onTap(l *lab) *pod        { return l.pod() }
func onMemif(l *lab) *pod      { return l.memifPod() }
func onVeth(l *lab) *pod       { return l.vethPod(cable{}) }
func onOpenVeth(l *lab) *pod   { return l.vethPod(cable{everything: true}) }
func leavesTheCRC(l *lab) *pod { return l.vethPod(cable{sctpChecksum: true}) }

var (
	paths = []path{
		{"tap to tap", onTap, onTap, false, false},
		{"veth to veth", onVeth, onVeth, false, false},
		{"open veth to open veth", onOpenVeth, onOpenVeth, false, true},
		{"open veth to tap", onOpenVeth, onTap, false, true},
		{"tap to memif", onTap, onMemif, false, false},
		{"veth to memif", onVeth, onMemif, false, false},
		{"open veth to memif", onOpenVeth, onMemif, false, true},
		{"veth to tap of another node", onVeth, onTap, true, false},
		{"open veth to open veth of another node", onOpenVeth, onOpenVeth, true, true},
	}
	crcPaths = []path{
		{"veth that leaves the CRC to memif", leavesTheCRC, onMemif, false, false},
		{"veth that leaves the CRC to tap of another node", leavesTheCRC, onTap, true, false},
		{"veth that leaves the CRC to veth", leavesTheCRC, onVeth, false, false},
	}
)

// expressesUDP reports whether the kernel describes UDP segments to packet sockets, since Linux 6.2.
func expressesUDP() bool {
	var u unix.Utsname
	major := 0
	minor := 0
	_ = unix.Uname(&u)
	_, _ = fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &major, &minor)
	return major > 6 || major == 6 && minor >= 2
}

// What the kernel cannot pass to the dataplane is lost, and is counted.
func TestSegmentsThatTheKernelDropsAreCounted(t *testing.T) {
	l := newLab(t)
	a := onOpenVeth(l)
	b := l.pod()
	if expressesUDP() {
		t.Skip("this kernel describes all segments that UDP and TCP leave to a veth")
	}
	a.sendSegments(t, b.v4)
	eventually(t, "the drop is counted", func() bool {
		return l.engine.Drops()["af-packet-input/segmentation that virtio cannot express"] > 0
	})
}

// sendSegments sends datagrams by one call.
func (p *pod) sendSegments(t *testing.T, to netip.Addr) {
	t.Helper()
	var c *net.UDPConn
	var err error
	netnstest.Do(t, p.namespace, func() {
		c, err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, 9)))
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	segmentBy(t, c, datagramSize)
	if _, err := c.Write(make([]byte, datagramSize*datagrams)); err != nil {
		t.Fatal(err)
	}
}

const (
	bulkSize = 1 << 20
	bulkTime = time.Minute
)

// bulk sends random bytes to a pod and compares what arrives.
func (p *pod) bulk(t *testing.T, q *pod, to netip.Addr, network string) {
	t.Helper()
	var listener net.Listener
	var conn net.Conn
	var err error
	netnstest.Do(t, q.namespace, func() { listener, err = net.Listen(network, netip.AddrPortFrom(to, 5001).String()) })
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	deadline := time.Now().Add(bulkTime)
	received := make(chan string, 1)
	go func() {
		c, err := listener.Accept()
		if err != nil {
			received <- err.Error()
			return
		}
		defer c.Close()
		_ = c.SetDeadline(deadline)
		h := sha256.New()
		n, err := io.Copy(h, c)
		received <- fmt.Sprintf("%d %x %v", n, h.Sum(nil), err)
	}()
	netnstest.Do(t, p.namespace, func() {
		d := net.Dialer{Deadline: deadline}
		conn, err = d.Dial(network, netip.AddrPortFrom(to, 5001).String())
	})
	if err != nil {
		t.Fatalf("TCP to %v: %v", to, err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(deadline)
	h := sha256.New()
	if _, err := io.Copy(io.MultiWriter(conn, h), io.LimitReader(rand.Reader, bulkSize)); err != nil {
		t.Fatalf("TCP to %v stalls: %v", to, err)
	}
	conn.Close()
	if got, want := <-received, fmt.Sprintf("%d %x %v", bulkSize, h.Sum(nil), nil); got != want {
		t.Errorf("TCP to %v: received %s, sent %s", to, got, want)
	}
}

// Datagrams of one send with UDP_SEGMENT.
const (
	datagramSize = 1000
	datagrams    = 20
)

// segments sends datagrams with UDP_SEGMENT until all of one send arrive. The network may lose some, but not always the
// same ones.
func (p *pod) segments(t *testing.T, q *pod, to netip.Addr) {
	t.Helper()
	var sender, receiver *net.UDPConn
	var err error
	netnstest.Do(t, q.namespace, func() {
		receiver, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, 5002)))
	})
	if err != nil {
		t.Fatal(err)
	}
	defer receiver.Close()
	netnstest.Do(t, p.namespace, func() {
		sender, err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, 5002)))
	})
	if err != nil {
		t.Fatal(err)
	}
	defer sender.Close()
	segmentBy(t, sender, datagramSize)
	sent := make([]byte, datagramSize*datagrams)
	_, _ = rand.Read(sent)
	for deadline := time.Now().Add(bulkTime); ; {
		for n := range datagrams {
			sent[n*datagramSize] = byte(n)
		}
		if _, err := sender.Write(sent); err != nil {
			t.Fatalf("UDP_SEGMENT to %v: %v", to, err)
		}
		got := receiveAll(t, receiver, sent)
		if got == datagrams {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("UDP_SEGMENT to %v: %d of %d datagrams arrive", to, got, datagrams)
		}
	}
}

func segmentBy(t *testing.T, c syscall.Conn, size int) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_SEGMENT, size)
		})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// receiveAll returns how many of the datagrams arrive before there is a pause.
func receiveAll(t *testing.T, c *net.UDPConn, sent []byte) (n int) {
	t.Helper()
	seen := map[byte]bool{}
	b := make([]byte, 1<<16)
	for len(seen) < datagrams {
		_ = c.SetReadDeadline(time.Now().Add(2 * time.Second))
		n, err := c.Read(b)
		if err != nil {
			break
		}
		at := int(b[0]) * datagramSize
		if n != datagramSize || at >= len(sent) || !bytes.Equal(b[:n], sent[at:at+datagramSize]) {
			t.Fatalf("a datagram of %d bytes, or with other data", n)
		}
		seen[b[0]] = true
	}
	return len(seen)
}
