package vswitch

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"go.fd.io/govpp/api"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/tapv2"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	"github.com/weftnet/weft/internal/netnstest"
)

// pod is a network namespace with the host side of a tap; the dataplane's side has a subnet of its own.
type pod struct {
	netns string
	index interface_types.InterfaceIndex
	n     int
}

func addPod(t testing.TB, conn api.Connection, n int, flags tapv2.TapFlags) pod {
	t.Helper()
	p := pod{netns: netnstest.New(t), n: n}
	reply, err := tapv2.NewServiceClient(conn).TapCreateV3(t.Context(), &tapv2.TapCreateV3{
		ID:               ^uint32(0),
		UseRandomMac:     true,
		HostNamespaceSet: true, HostNamespace: p.netns, HostIfNameSet: true, HostIfName: "eth0", TapFlags: flags,
		HostMtuSet: true, HostMtuSize: 1500, Tag: fmt.Sprintf("pod%d", n),
	})
	if err != nil {
		t.Fatal("create tap:", err)
	}
	p.index = reply.SwIfIndex
	c := interfaces.NewServiceClient(conn)
	if _, err := c.SwInterfaceSetFlags(t.Context(), &interfaces.SwInterfaceSetFlags{SwIfIndex: p.index,
		Flags: interface_types.IF_STATUS_API_FLAG_ADMIN_UP}); err != nil {
		t.Fatal("set up:", err)
	}
	for _, gateway := range []string{p.prefix4(1), p.prefix6(1)} {
		if _, err := c.SwInterfaceAddDelAddress(t.Context(), &interfaces.SwInterfaceAddDelAddress{SwIfIndex: p.index,
			IsAdd: true, Prefix: addressWithPrefix(t, gateway)}); err != nil {
			t.Fatal("add address:", err)
		}
	}
	netnstest.Do(t, p.netns, func() { p.onLink(t, 2) })
	return p
}

func (p pod) prefix4(host int) string { return fmt.Sprintf("10.0.%d.%d/24", p.n, host) }
func (p pod) prefix6(host int) string { return fmt.Sprintf("fd00:%d::%d/64", p.n, host) }

func addressWithPrefix(t testing.TB, s string) ip_types.AddressWithPrefix {
	t.Helper()
	p, err := ip_types.ParseAddressWithPrefix(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// listen opens a socket in the pod, or fails the test.
func listen[T any](t testing.TB, p pod, open func() (T, error)) T {
	t.Helper()
	var opened T
	netnstest.Do(t, p.netns, func() {
		var err error
		if opened, err = open(); err != nil {
			t.Fatal("open socket in pod:", err)
		}
	})
	return opened
}

// ping sends echo requests from the pod's kernel until one is answered: the first may be lost during neighbour
// resolution.
func ping(t testing.TB, from pod, to string) {
	t.Helper()
	dst := netip.MustParsePrefix(to).Addr()
	network := "ip4:icmp"
	any := "0.0.0.0"
	request := icmp.Type(ipv4.ICMPTypeEcho)
	reply := icmp.Type(ipv4.ICMPTypeEchoReply)
	proto := 1
	if dst.Is6() {
		network = "ip6:ipv6-icmp"
		any = "::"
		request = ipv6.ICMPTypeEchoRequest
		reply = ipv6.ICMPTypeEchoReply
		proto = 58
	}
	conn := listen(t, from, func() (*icmp.PacketConn, error) { return icmp.ListenPacket(network, any) })
	defer conn.Close()
	for seq := range 30 {
		echo := &icmp.Echo{ID: 7, Seq: seq, Data: []byte("through the dataplane")}
		b, err := (&icmp.Message{Type: request, Body: echo}).Marshal(nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.WriteTo(b, &net.IPAddr{IP: dst.AsSlice()}); err != nil {
			t.Fatal("send echo request:", err)
		}
		if answered(t, conn, expected{dst, reply, proto, echo}) {
			return
		}
	}
	t.Errorf("no answer from %s to pod %d", to, from.n)
}

// expected is an echo reply.
type expected struct {
	from  netip.Addr
	kind  icmp.Type
	proto int
	echo  *icmp.Echo
}

// answered reads until the expected reply or a deadline.
func answered(t testing.TB, conn *icmp.PacketConn, e expected) bool {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(2 * time.Second)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 2048)
	for {
		n, peer, err := conn.ReadFrom(buf)
		if err != nil {
			return false
		}
		m, err := icmp.ParseMessage(e.proto, buf[:n])
		if err != nil || m.Type != e.kind || peer.String() != e.from.String() {
			continue
		}
		if got, ok := m.Body.(*icmp.Echo); ok && got.Seq == e.echo.Seq && bytes.Equal(got.Data, e.echo.Data) {
			return true
		}
	}
}

func TestPodsPingEachOther(t *testing.T) {
	netnstest.Require(t)
	conn := start(t).connect(t)
	a := addPod(t, conn, 1, tapv2.TAP_API_FLAG_GSO)
	b := addPod(t, conn, 2, 0)
	ping(t, a, a.prefix4(1)) // the gateway
	ping(t, a, b.prefix4(2))
	ping(t, b, a.prefix4(2))
	ping(t, a, b.prefix6(2))
	ping(t, b, b.prefix6(1))
}

// From a tap with segmentation offload to taps with and without it.
func TestPodsTransferOverTCP(t *testing.T) {
	netnstest.Require(t)
	conn := start(t).connect(t)
	a := addPod(t, conn, 1, tapv2.TAP_API_FLAG_GSO)
	for n, flags := range []tapv2.TapFlags{tapv2.TAP_API_FLAG_GSO, 0} {
		transfer(t, a, addPod(t, conn, n+2, flags))
	}
}

// transfer sends 4 MiB from a to b and compares the received data.
func transfer(t testing.TB, a, b pod) {
	t.Helper()
	transferTo(t, a, b, 2)
}

// transferTo is transfer to a pod with another host number.
func transferTo(t testing.TB, a, b pod, host int) {
	t.Helper()
	l := listen(t, b, func() (net.Listener, error) { return net.Listen("tcp4", "0.0.0.0:7000") })
	defer l.Close()
	sent := make([]byte, 4<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(sent) // never fails
	got := make(chan []byte, 1)
	go func() {
		defer close(got)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		if all, err := io.ReadAll(c); err == nil {
			got <- all
		}
	}()
	server := netip.MustParsePrefix(b.prefix4(host)).Addr().String() + ":7000"
	c := listen(t, a, func() (net.Conn, error) { return net.DialTimeout("tcp4", server, time.Minute) })
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write(sent); err != nil {
		t.Error("send:", err)
	}
	c.Close()
	if all := <-got; !bytes.Equal(all, sent) {
		t.Errorf("%d of %d bytes arrived, or others", len(all), len(sent))
	}
}

func TestDeletedTapLeavesThePodsNamespace(t *testing.T) {
	netnstest.Require(t)
	conn := start(t).connect(t)
	p := addPod(t, conn, 1, 0)
	if _, err := tapv2.NewServiceClient(conn).TapDeleteV2(t.Context(), &tapv2.TapDeleteV2{
		SwIfIndex: p.index,
	}); err != nil {
		t.Fatal(err)
	}
	netnstest.Do(t, p.netns, func() {
		if _, err := netlink.LinkByName("eth0"); err == nil {
			t.Error("eth0 is still there")
		}
	})
}

func TestTapsAreDeletedWithTheDataplane(t *testing.T) {
	netnstest.Require(t)
	r := start(t)
	p := addPod(t, r.connect(t), 1, 0)
	r.stop()
	r.done <- <-r.done
	netnstest.Do(t, p.netns, func() {
		if _, err := netlink.LinkByName("eth0"); err == nil {
			t.Error("eth0 is still there")
		}
	})
}

func TestMissingNamespaceIsVPPsError(t *testing.T) {
	conn := start(t).connect(t)
	_, err := tapv2.NewServiceClient(conn).TapCreateV3(t.Context(), &tapv2.TapCreateV3{
		ID:               ^uint32(0),
		UseRandomMac:     true,
		HostNamespaceSet: true, HostNamespace: filepath.Join(t.TempDir(), "none"),
	})
	if want := api.SYSCALL_ERROR_2; err != want { //nolint:errorlint // govpp returns the number itself
		t.Fatalf("want %v, got %v", want, err)
	}
}
