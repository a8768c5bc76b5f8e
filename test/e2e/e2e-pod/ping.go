package main

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// family has the differences between ICMP and ICMPv6.
type family struct {
	network, any string
	protocol     int
	request      icmp.Type
	reply        icmp.Type
}

var (
	four = family{
		network:  "ip4:icmp",
		any:      "0.0.0.0",
		protocol: 1,
		request:  ipv4.ICMPTypeEcho,
		reply:    ipv4.ICMPTypeEchoReply,
	}
	six = family{
		network:  "ip6:ipv6-icmp",
		any:      "::",
		protocol: 58,
		request:  ipv6.ICMPTypeEchoRequest,
		reply:    ipv6.ICMPTypeEchoReply,
	}
)

// lossTimeout is after how long a reply counts as lost. A busy machine is late by seconds.
const lossTimeout = 10 * time.Second

// ping sends COUNT (default 1) echo requests at intervals, and fails without a reply.
func ping(out io.Writer, arguments []string) error {
	if len(arguments) == 0 || len(arguments) > 3 {
		return fmt.Errorf("usage: ping ADDRESS [COUNT [INTERVAL]]")
	}
	address, err := netip.ParseAddr(arguments[0])
	if err != nil {
		return err
	}
	count := 1
	interval := time.Duration(0)
	if len(arguments) > 1 {
		if count, err = strconv.Atoi(arguments[1]); err != nil {
			return err
		}
	}
	if len(arguments) > 2 {
		if interval, err = time.ParseDuration(arguments[2]); err != nil {
			return err
		}
	}
	f := familyOf(address)
	conn, err := icmp.ListenPacket(f.network, f.any)
	if err != nil {
		return err
	}
	defer conn.Close()
	pause := time.NewTimer(interval)
	defer pause.Stop()
	for sequence := 1; count == 0 || sequence <= count; sequence++ {
		took, err := f.ask(conn, address, sequence&0xffff, lossTimeout) // 16 bits of the header
		if err != nil {
			return fmt.Errorf("request %d of %d: %w", sequence, count, err)
		}
		fmt.Fprintf(out, "%s answers %d in %s\n", address, sequence, took)
		pause.Reset(interval)
		<-pause.C
	}
	return nil
}

// outages sends echo requests at intervals without end, and prints each time without replies.
func outages(out io.Writer, arguments []string) error {
	if len(arguments) != 2 {
		return fmt.Errorf("usage: outages ADDRESS INTERVAL")
	}
	address, err := netip.ParseAddr(arguments[0])
	if err != nil {
		return err
	}
	interval, err := time.ParseDuration(arguments[1])
	if err != nil {
		return err
	}
	f := familyOf(address)
	conn, err := icmp.ListenPacket(f.network, f.any)
	if err != nil {
		return err
	}
	defer conn.Close()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	last := time.Now()
	lost := 0
	for sequence := 1; ; sequence++ {
		if _, err := f.ask(conn, address, sequence&0xffff, interval); err != nil { // also if the link is down
			lost++
		} else {
			if lost > 0 {
				fmt.Fprintf(out, "outage %s lost %d\n", time.Since(last).Round(time.Millisecond), lost)
			}
			last = time.Now()
			lost = 0
		}
		<-tick.C
	}
}

func familyOf(address netip.Addr) family {
	if address.Is6() {
		return six
	}
	return four
}

// ask sends one request and waits for its reply.
func (f family) ask(
	conn *icmp.PacketConn, address netip.Addr, sequence int, timeout time.Duration,
) (time.Duration, error) {
	identity := os.Getpid() & 0xffff
	request, err := (&icmp.Message{
		Type: f.request,
		Body: &icmp.Echo{ID: identity, Seq: sequence, Data: []byte("e2e")},
	}).Marshal(nil)
	if err != nil {
		return 0, err
	}
	started := time.Now()
	if err := conn.SetDeadline(started.Add(timeout)); err != nil {
		return 0, err
	}
	if _, err := conn.WriteTo(request, &net.IPAddr{IP: address.AsSlice(), Zone: address.Zone()}); err != nil {
		return 0, err
	}
	for packet := make([]byte, 1500); ; {
		n, _, err := conn.ReadFrom(packet)
		if err != nil {
			return 0, err
		}
		message, err := icmp.ParseMessage(f.protocol, packet[:n])
		if err != nil || message.Type != f.reply {
			continue
		}
		if echo, ok := message.Body.(*icmp.Echo); ok && echo.ID == identity && echo.Seq == sequence {
			return time.Since(started), nil
		}
	}
}
