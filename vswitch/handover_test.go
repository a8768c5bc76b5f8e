package vswitch

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	govpp "go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/af_packet"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/l2"
	binapi "go.fd.io/govpp/binapi/memif"
	"go.fd.io/govpp/binapi/tapv2"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/memif"
)

// datagramEvery is the interval of the datagrams that measure a loss.
const datagramEvery = time.Millisecond

// datagrams is a stream of datagrams from a pod to another one.
type datagrams struct {
	sender   *net.UDPConn
	receiver *net.UDPConn
	to       *net.UDPAddr
}

type loss struct {
	sent, received int
	gap            time.Duration
}

func newDatagrams(t *testing.T, from, to pod) *datagrams {
	t.Helper()
	s := &datagrams{to: net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParsePrefix(to.prefix4(2)).Addr(), 7001))}
	s.receiver = listen(t, to, func() (*net.UDPConn, error) { return net.ListenUDP("udp4", &net.UDPAddr{Port: 7001}) })
	s.sender = listen(t, from, func() (*net.UDPConn, error) { return net.ListenUDP("udp4", nil) })
	t.Cleanup(s.close)
	return s
}

func (s *datagrams) close() {
	_ = s.sender.Close()
	_ = s.receiver.Close()
}

// during streams while f runs and a little longer.
func (s *datagrams) during(t *testing.T, f func()) loss {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	sent := make(chan int)
	go func() {
		n := 0
		tick := time.NewTicker(datagramEvery)
		defer tick.Stop()
		for ; ctx.Err() == nil; <-tick.C {
			_, _ = s.sender.WriteToUDP(binary.BigEndian.AppendUint32(nil, uint32(n)), s.to)
			n++
		}
		sent <- n
	}()
	counted := make(chan loss)
	var received atomic.Int64
	go func() {
		var l loss
		var last time.Time
		b := make([]byte, 16)
		for {
			if _, _, err := s.receiver.ReadFromUDP(b); err != nil {
				counted <- l
				return
			}
			now := time.Now()
			l.received++
			received.Store(int64(l.received))
			if !last.IsZero() {
				l.gap = max(l.gap, now.Sub(last))
			}
			last = now
		}
	}()
	eventually(t, func() bool { return received.Load() > 20 })
	f()
	after := received.Load()
	eventually(t, func() bool { return received.Load() > after+200 })
	stop()
	n := <-sent
	end := time.Now().Add(5 * time.Second)
	for received.Load() < int64(n) && time.Now().Before(end) { // some may be on their way
		<-time.After(10 * time.Millisecond)
	}
	must(t, s.receiver.SetReadDeadline(time.Now()))
	l := <-counted
	l.sent = n
	s.close()
	return l
}

// linkIndex returns the kernel's index of a pod's eth0, which tells whether the link is still the same.
func linkIndex(t *testing.T, p pod) (index int) {
	t.Helper()
	netnstest.Do(t, p.netns, func() {
		link, err := netlink.LinkByName("eth0")
		must(t, err)
		index = link.Attrs().Index
	})
	return index
}

// names lists the interfaces of the dataplane with index, tag and flags.
func names(t *testing.T, conn govpp.Connection) (list []string) {
	t.Helper()
	dump, err := interfaces.NewServiceClient(conn).SwInterfaceDump(t.Context(), &interfaces.SwInterfaceDump{
		SwIfIndex: ^interface_types.InterfaceIndex(0),
	})
	must(t, err)
	for {
		d, err := dump.Recv()
		if err != nil {
			return list
		}
		list = append(list, fmt.Sprintf("%+v", *d))
	}
}

func becomesActive(t *testing.T, socket, name string) {
	t.Helper()
	eventually(t, func() bool {
		s := StatusOf(t.Context(), socket)
		return s.Active != nil && s.Active.Name == name && s.Standby == nil
	})
}

// startHeir is startStandby for a standby that is ready for a handover.
func startHeir(t *testing.T, socket, name string) *running {
	t.Helper()
	var ready atomic.Bool
	log := slog.New(slog.NewTextHandler(writer(func(line string) {
		if strings.Contains(line, "ready for a handover") {
			ready.Store(true)
		}
		t.Log(strings.TrimSpace(line))
	}), nil))
	r := startStandby(t, Config{APISocket: socket, Name: name, Log: log})
	eventually(t, ready.Load)
	return r
}

// writer calls a function with each line.
type writer func(string)

func (w writer) Write(b []byte) (int, error) {
	w(string(b))
	return len(b), nil
}

func testLog(t *testing.T) *slog.Logger {
	t.Helper()
	return slog.New(slog.NewTextHandler(t.Output(), nil))
}

func TestHandoverLosesNoPacketOfTapsAndVeths(t *testing.T) {
	netnstest.Require(t)
	first := start(t)
	conn := first.connect(t)
	pods := []pod{
		addPod(t, conn, 1, tapv2.TAP_API_FLAG_GSO), addPod(t, conn, 2, 0), addVethPod(t, conn, 3, 0),
		addVethPod(t, conn, 4, af_packet.AF_PACKET_API_FLAG_CKSUM_GSO),
	}
	for _, pair := range [][2]int{{0, 1}, {2, 3}, {0, 3}} {
		ping(t, pods[pair[0]], pods[pair[1]].prefix4(2))
	}
	links := []int{linkIndex(t, pods[0]), linkIndex(t, pods[1])}
	before := names(t, conn)
	active := first
	for round, pair := range [][2]int{{0, 1}, {2, 3}, {0, 3}} {
		name := fmt.Sprintf("next%d", round)
		standby := startHeir(t, first.socket, name)
		l := newDatagrams(t, pods[pair[0]], pods[pair[1]]).during(t, func() {
			active.stop()
			becomesActive(t, first.socket, name)
		})
		t.Logf("pods %v: %d of %d datagrams lost, longest gap %s", pair, l.sent-l.received, l.sent, l.gap)
		if l.sent-l.received > 5 || l.gap > 2*time.Second { // a gap is no loss, and grows with the load of the machine
			t.Errorf("pods %v: %d of %d datagrams lost, longest gap %s", pair, l.sent-l.received, l.sent, l.gap)
		}
		active = standby
	}
	if got := []int{linkIndex(t, pods[0]), linkIndex(t, pods[1])}; !slices.Equal(got, links) {
		t.Errorf("links %v became %v", links, got)
	}
	if after := names(t, first.connect(t)); !reflect.DeepEqual(before, after) {
		t.Errorf("interfaces were\n%s\nand are\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
	ping(t, pods[1], pods[2].prefix4(2))
}

// Memifs without clients are handed over with their sockets, so that clients can connect at once, in the same bridge
// domain as before.
func TestMemifClientsConnectAfterAHandover(t *testing.T) {
	netnstest.Require(t)
	first := start(t)
	conn := first.connect(t)
	addBridge(t, conn, 7)
	path := memifSocket(t, conn, 3)
	for id := range uint32(2) {
		index := addMemif(t, conn, binapi.MemifCreateV2{SocketID: 3, ID: id + 1, Secret: string(memifSecret)})
		join(t, conn, l2.SwInterfaceSetL2Bridge{RxSwIfIndex: index, BdID: 7})
	}
	reach := func() {
		t.Helper()
		a := runMemifPod(t, memif.ClientConfig{Socket: path, ID: 1, Secret: memifSecret}, "10.0.44.11")
		b := runMemifPod(t, memif.ClientConfig{Socket: path, ID: 2, Secret: memifSecret}, "10.0.44.12")
		if !a.ping("10.0.44.12", "10.0.44.12", 1400) {
			t.Error("no ping from a memif to the other one")
		}
		a.stop()
		b.stop()
	}
	reach()
	startHeir(t, first.socket, "next")
	begun := time.Now()
	first.stop()
	becomesActive(t, first.socket, "next")
	reach()
	t.Logf("a ping was answered %s after the end of the first dataplane", time.Since(begun).Round(time.Millisecond))
	if after := names(t, first.connect(t)); len(after) != 3 {
		t.Errorf("interfaces %v", after)
	}
}
