package scripts_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/test/netns"
)

const (
	floodPort    = 7777
	floodPackets = 3000
	floodPayload = 1000
	// floodFrame is a packet with the headers of Ethernet, IPv4 and UDP.
	floodFrame = floodPayload + 14 + 20 + 8
	// floodQuiet is how long the receiver waits for another packet.
	floodQuiet = 300 * time.Millisecond
)

// floodCommand: flood FROM TO KILOBITS BURST sends 3 MB at once to TO's first address. Of them the burst must arrive,
// and not more than a token bucket of these kilobits per second and bytes lets through in the time.
func floodCommand(ts *testscript.TestScript, neg bool, args []string) {
	var kilobits, burst int
	if neg || len(args) != 4 {
		usage(ts, "flood FROM TO KILOBITS BURST")
	}
	if _, err := fmt.Sscan(args[2]+" "+args[3], &kilobits, &burst); err != nil {
		usage(ts, "flood FROM TO KILOBITS BURST")
	}
	s := on(ts)
	addresses, err := s.addresses(args[1])
	ts.Check(err)
	to := netip.AddrPortFrom(addresses[0], floodPort)
	var in net.PacketConn
	var out net.Conn
	ts.Check(netns.Do(s.netns(ts, args[1]), func() (err error) {
		large := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
			return c.Control(func(fd uintptr) {
				_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20)
			})
		}}
		in, err = large.ListenPacket(context.Background(), "udp", to.String())
		return err
	}))
	defer in.Close()
	ts.Check(netns.Do(s.netns(ts, args[0]), func() (err error) {
		out, err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
		return err
	}))
	defer out.Close()
	began := time.Now()
	received := make(chan int)
	var last time.Time
	go func() {
		n := 0
		room := make([]byte, floodPayload)
		for {
			_ = in.SetReadDeadline(time.Now().Add(floodQuiet))
			if _, _, err := in.ReadFrom(room); err != nil {
				received <- n
				return
			}
			last = time.Now()
			n++
		}
	}()
	for range floodPackets {
		_, err := out.Write(make([]byte, floodPayload))
		ts.Check(err)
	}
	n := <-received
	most := burst + int(last.Sub(began).Seconds()*float64(kilobits)*1000/8)
	_, _ = fmt.Fprintf(ts.Stdout(), "%d of %d packets arrived, %d bytes\n", n, floodPackets, n*floodFrame)
	switch {
	case n*floodFrame > most:
		ts.Fatalf("%d packets of %d bytes arrived in %s, which are more than %d bytes", n, floodFrame, last.Sub(began), most)
	case n*floodFrame < burst-floodFrame:
		ts.Fatalf("%d packets of %d bytes arrived, which are less than the burst", n, floodFrame)
	}
}
