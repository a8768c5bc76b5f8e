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

// lastWords is how many datagrams wait at once: fewer than a tap's queue holds.
const lastWords = 200

// TestWhatAPodSaidLastIsSentOn is about such as the release of a DHCP client, which is sent right before the link goes.
func TestWhatAPodSaidLastIsSentOn(t *testing.T) {
	netnstest.Require(t)
	conn := start(t).connect(t)
	addBridge(t, conn, 1)
	to := addBridgedPod(t, conn, bridged{bridge: 1, host: 2})
	ears := listen(t, to, func() (*net.UDPConn, error) { return net.ListenUDP("udp4", &net.UDPAddr{Port: 67}) })
	defer ears.Close()
	for name, leave := range map[string]func(pod) error{
		"its tap leaves the bridge domain": func(p pod) error {
			_, err := l2.NewServiceClient(conn).SwInterfaceSetL2Bridge(t.Context(), &l2.SwInterfaceSetL2Bridge{RxSwIfIndex: p.index})
			return err
		},
		"its tap is deleted": func(p pod) error {
			_, err := tapv2.NewServiceClient(conn).TapDeleteV2(t.Context(), &tapv2.TapDeleteV2{SwIfIndex: p.index})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) { speakAndGo(t, conn, ears, leave) })
	}
}

// speakAndGo lets a pod say something and leave, and fails the test if not all of it is heard.
func speakAndGo(t *testing.T, conn api.Connection, ears *net.UDPConn, leave func(pod) error) {
	t.Helper()
	p := addBridgedPod(t, conn, bridged{bridge: 1, host: 3})
	ping(t, p, p.prefix4(2))
	mouth := listen(t, p, func() (*net.UDPConn, error) { return net.ListenUDP("udp4", nil) })
	defer mouth.Close()
	address := net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParsePrefix(p.prefix4(2)).Addr(), 67))
	words := make([]ipv4.Message, lastWords)
	for i := range words {
		words[i] = ipv4.Message{Buffers: [][]byte{{byte(i)}}, Addr: address}
	}
	n, err := ipv4.NewPacketConn(mouth).WriteBatch(words, 0)
	if err != nil || n != lastWords {
		t.Fatalf("%d of %d said: %v", n, lastWords, err)
	}
	if err := leave(p); err != nil {
		t.Fatal(err)
	}
	if err := ears.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	for heard := range lastWords {
		if _, _, err := ears.ReadFromUDP(make([]byte, 1)); err != nil {
			t.Fatalf("%d of %d heard: %v", heard, lastWords, err)
		}
	}
}
