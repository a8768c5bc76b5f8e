package vswitch

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/l2"
	"go.fd.io/govpp/binapi/tapv2"
	"golang.org/x/net/ipv4"

	"github.com/weftnet/weft/internal/netnstest"
)

// lastPackets is the number of waiting datagrams, fewer than a tap's queue holds.
const lastPackets = 200

// TestLastPacketsOfAPodAreForwarded is about packets such as a DHCP release, sent right before the link is deleted.
func TestLastPacketsOfAPodAreForwarded(t *testing.T) {
	netnstest.Require(t)
	conn := start(t).connect(t)
	addBridge(t, conn, 1)
	to := addBridgedPod(t, conn, bridged{bridge: 1, host: 2})
	receiver := listen(t, to, func() (*net.UDPConn, error) { return net.ListenUDP("udp4", &net.UDPAddr{Port: 67}) })
	defer receiver.Close()
	for name, leave := range map[string]func(pod) error{
		"its tap leaves the bridge domain": func(p pod) error {
			_, err := l2.NewServiceClient(conn).SwInterfaceSetL2Bridge(t.Context(), &l2.SwInterfaceSetL2Bridge{
				RxSwIfIndex: p.index,
			})
			return err
		},
		"its tap is deleted": func(p pod) error {
			_, err := tapv2.NewServiceClient(conn).TapDeleteV2(t.Context(), &tapv2.TapDeleteV2{SwIfIndex: p.index})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) { sendAndDelete(t, conn, receiver, leave) })
	}
}

// sendAndDelete makes a pod send packets, deletes its interface, and fails the test if any packet is lost.
func sendAndDelete(t *testing.T, conn api.Connection, receiver *net.UDPConn, leave func(pod) error) {
	t.Helper()
	p := addBridgedPod(t, conn, bridged{bridge: 1, host: 3})
	ping(t, p, p.prefix4(2))
	sender := listen(t, p, func() (*net.UDPConn, error) { return net.ListenUDP("udp4", nil) })
	defer sender.Close()
	address := net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParsePrefix(p.prefix4(2)).Addr(), 67))
	packets := make([]ipv4.Message, lastPackets)
	for i := range packets {
		packets[i] = ipv4.Message{Buffers: [][]byte{{byte(i)}}, Addr: address}
	}
	n, err := ipv4.NewPacketConn(sender).WriteBatch(packets, 0)
	if err != nil || n != lastPackets {
		t.Fatalf("%d of %d sent: %v", n, lastPackets, err)
	}
	if err := leave(p); err != nil {
		t.Fatal(err)
	}
	if err := receiver.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	for received := range lastPackets {
		if _, _, err := receiver.ReadFromUDP(make([]byte, 1)); err != nil {
			t.Fatalf("%d of %d arrived: %v", received, lastPackets, err)
		}
	}
}
