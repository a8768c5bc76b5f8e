package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

// attempts is the number of packets of a probe that may be lost: the first packets wait for ARP and neighbour
// discovery.
const attempts = 3

// Send sends the probes one after the other, and calls report with each outcome.
func Send(ctx context.Context, probes []Probe, report func(Outcome)) {
	for _, p := range probes {
		if ctx.Err() != nil {
			return
		}
		start := time.Now()
		size, err := p.send(ctx)
		o := Outcome{ID: p.ID, Took: time.Since(start), Size: size}
		if err != nil {
			o.Error = reason(err, p.Timeout)
			o.Fits = p.longest(ctx, size)
		}
		report(o)
	}
}

// reason returns an error in words, without the addresses, which the report has.
func reason(err error, timeout time.Duration) string {
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Sprintf("no reply within %s", timeout)
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno.Error()
	}
	return err.Error()
}

func (p Probe) send(ctx context.Context) (size int, err error) {
	ctx, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	switch p.Kind {
	case Ping:
		return 0, p.ping(ctx)
	case TCP:
		return 0, p.stream(ctx)
	case UDP:
		return 0, p.datagram(ctx, 64, false)
	case Full:
		return p.full(ctx)
	case Connect:
		return 0, p.connect(ctx)
	case DNS:
		_, err := net.DefaultResolver.LookupHost(ctx, p.Name)
		return 0, err
	}
	return 0, fmt.Errorf("unknown probe %q", p.Kind)
}

func (p Probe) target() string { return netip.AddrPortFrom(p.To, p.Port).String() }

// connect succeeds also if the host refuses the connection, because then it has answered.
func (p Probe) connect(ctx context.Context) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.target())
	if errors.Is(err, unix.ECONNREFUSED) {
		return nil
	}
	if err != nil {
		return err
	}
	return conn.Close()
}

// stream sends more bytes than a segment has, and wants them back.
func (p Probe) stream(ctx context.Context) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.target())
	if err != nil {
		return err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	sent := pattern(16 << 10)
	if _, err := conn.Write(sent); err != nil {
		return err
	}
	back := make([]byte, len(sent))
	for n := 0; n < len(back); {
		m, err := conn.Read(back[n:])
		if err != nil {
			return err
		}
		n += m
	}
	if !bytes.Equal(sent, back) {
		return errors.New("the echo differs from the data")
	}
	return nil
}

// full sends a datagram that fills the MTU of the interface.
func (p Probe) full(ctx context.Context) (int, error) {
	i, err := net.InterfaceByName(p.Via)
	if err != nil {
		return 0, fmt.Errorf("interface %s: %w", p.Via, err)
	}
	mtu := min(i.MTU, 65535)
	return mtu, p.datagram(ctx, mtu-p.headers(), true)
}

// Sizes of IP packets that the search for the longest one compares: it knows the result to 16 bytes after at most
// searchSteps packets, for an MTU of up to 9600.
const (
	shortestPacket = 576
	searchGrain    = 16
	searchSteps    = 11
)

// longest returns the length of the longest IP packet, shorter than one that was not answered, that is answered; 0 if
// even short ones are not, or if the probe is not about lengths.
func (p Probe) longest(ctx context.Context, lost int) (fits int) {
	step := p
	step.Timeout = p.Timeout / attempts
	next := shortestPacket
	for range searchSteps {
		if lost-fits <= searchGrain || next >= lost {
			return fits
		}
		if step.arrives(ctx, next) {
			fits = next
		} else if lost = next; fits == 0 {
			return 0
		}
		next = (fits + lost) / 2
	}
	return fits
}

// arrives reports whether an IP packet of a length is answered.
func (p Probe) arrives(ctx context.Context, length int) bool {
	ctx, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	return p.datagram(ctx, length-p.headers(), true) == nil
}

// headers returns the length of the headers before the data of a datagram.
func (p Probe) headers() int {
	if p.To.Is6() {
		return 40 + 8
	}
	return 20 + 8
}

// datagram sends a datagram until its echo arrives, several times.
func (p Probe) datagram(ctx context.Context, size int, whole bool) error {
	dialer := net.Dialer{}
	if whole {
		dialer.ControlContext = neverFragment
	}
	conn, err := dialer.DialContext(ctx, "udp", p.target())
	if err != nil {
		return err
	}
	defer conn.Close()
	sent := pattern(size)
	back := make([]byte, maxDatagram)
	for range attempts {
		if err = conn.SetDeadline(time.Now().Add(p.Timeout / attempts)); err != nil {
			return err
		}
		var n int
		if _, err = conn.Write(sent); err == nil {
			n, err = conn.Read(back)
		}
		if err == nil && bytes.Equal(sent, back[:n]) {
			return nil
		}
		if err == nil {
			err = errors.New("the echo differs from the data")
		}
	}
	return err
}

// neverFragment forbids the kernel to fragment the packets of a socket.
func neverFragment(_ context.Context, network, _ string, raw syscall.RawConn) error {
	level := unix.IPPROTO_IP
	option := unix.IP_MTU_DISCOVER
	value := unix.IP_PMTUDISC_PROBE
	if network == "udp6" {
		level = unix.IPPROTO_IPV6
		option = unix.IPV6_MTU_DISCOVER
		value = unix.IPV6_PMTUDISC_PROBE
	}
	var failure error
	if err := raw.Control(func(fd uintptr) {
		failure = unix.SetsockoptInt(int(fd), level, option, value)
	}); err != nil {
		return err
	}
	return failure
}

// ping sends echo requests by a socket that needs no capability (sysctl net.ipv4.ping_group_range).
func (p Probe) ping(ctx context.Context) error {
	network := "udp4"
	protocol := 1
	request := icmp.Type(ipv4.ICMPTypeEcho)
	reply := icmp.Type(ipv4.ICMPTypeEchoReply)
	if p.To.Is6() {
		network = "udp6"
		protocol = 58
		request = ipv6.ICMPTypeEchoRequest
		reply = ipv6.ICMPTypeEchoReply
	}
	any4or6 := netip.IPv4Unspecified()
	if p.To.Is6() {
		any4or6 = netip.IPv6Unspecified()
	}
	conn, err := icmp.ListenPacket(network, any4or6.String())
	if err != nil {
		return fmt.Errorf("ping socket: %w", err)
	}
	defer conn.Close()
	end := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer end()
	for seq := range attempts {
		if err = p.pingOnce(conn, seq+1, protocol, [2]icmp.Type{request, reply}); err == nil || ctx.Err() != nil {
			return err
		}
	}
	return err
}

// pingOnce sends one echo request and waits for its reply. The kernel delivers only replies to this socket.
func (p Probe) pingOnce(conn *icmp.PacketConn, seq, protocol int, types [2]icmp.Type) error {
	message := icmp.Message{Type: types[0], Body: &icmp.Echo{Seq: seq, Data: pattern(56)}}
	raw, err := message.Marshal(nil)
	if err != nil {
		return err
	}
	if err := conn.SetDeadline(time.Now().Add(p.Timeout / attempts)); err != nil {
		return err
	}
	if _, err := conn.WriteTo(raw, &net.UDPAddr{IP: p.To.AsSlice()}); err != nil {
		return err
	}
	buffer := make([]byte, 1500)
	for {
		n, _, err := conn.ReadFrom(buffer)
		if err != nil {
			return err
		}
		m, err := icmp.ParseMessage(protocol, buffer[:n])
		if err != nil {
			continue
		}
		if body, ok := m.Body.(*icmp.Echo); ok && m.Type == types[1] && body.Seq == seq {
			return nil
		}
	}
}

// pattern returns bytes that differ from their neighbours.
func pattern(size int) []byte {
	b := make([]byte, max(size, 0))
	for i := range b {
		b[i] = byte(i * 7)
	}
	return b
}
