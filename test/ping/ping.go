// Package ping sends ICMP echo requests from a network namespace and counts the replies.
package ping

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/test/traffic"
)

// Pinger is a raw ICMP socket of one family in one network namespace.
type Pinger struct {
	conn   *net.IPConn
	family family
	id     int
	sent   atomic.Int64 // number of requests of Stream
}

// family has the differences between ICMP and ICMPv6.
type family struct {
	network, listen string
	request, reply  icmp.Type
	protocol        int // number, for the decoder
}

var (
	v4 = family{"ip4:icmp", "0.0.0.0", ipv4.ICMPTypeEcho, ipv4.ICMPTypeEchoReply, 1}
	v6 = family{"ip6:ipv6-icmp", "::", ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply, 58}
)

// payload distinguishes the requests of a Pinger from other requests in the namespace.
var payload = []byte("weft pings, and weft is answered; 56 bytes are the usual")

// Open makes a Pinger for addresses of to's family, in the namespace at path ("" is the caller's own).
func Open(path string, to netip.Addr) (*Pinger, error) { return OpenOn(path, "", to) }

// OpenOn makes a Pinger that sends and receives on one link of the namespace only.
func OpenOn(path, link string, to netip.Addr) (*Pinger, error) {
	p := &Pinger{family: v4, id: rand.IntN(1 << 16)}
	if to.Is6() {
		p.family = v6
	}
	listen := func() error {
		c, err := traffic.Listener(link).ListenPacket(context.Background(), p.family.network, p.family.listen)
		if err != nil {
			return err
		}
		p.conn = c.(*net.IPConn)
		return errors.Join(stampArrivals(p.conn), growBuffer(p.conn))
	}
	if err := traffic.Inside(path, listen); err != nil {
		return nil, fmt.Errorf("open ping socket: %w", err)
	}
	return p, nil
}

// received is the size of the socket's receive buffer. The default is full after 300 ms without a processor, and then
// the kernel would drop replies that the network delivered.
const received = 16 << 20

// growBuffer sets the size of the receive buffer, above the limit of the system.
func growBuffer(c *net.IPConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failure error
	err = raw.Control(func(fd uintptr) {
		failure = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, received)
	})
	return errors.Join(err, failure)
}

// Close closes the socket.
func (p *Pinger) Close() error { return p.conn.Close() }

// Once sends one echo request and waits for its reply until the deadline of ctx, or for a second without one.
func (p *Pinger) Once(ctx context.Context, to netip.Addr, seq int) (time.Duration, error) {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(time.Second)
	}
	if err := p.conn.SetReadDeadline(deadline); err != nil {
		return 0, err
	}
	start := time.Now()
	if err := p.send(to, seq); err != nil {
		return 0, err
	}
	for {
		answer, err := p.receive()
		if err != nil {
			return 0, fmt.Errorf("ping %s: %w", to, err)
		}
		if answer.seq == seq {
			return answer.at.Sub(start), nil
		}
	}
}

// Reach repeats Once until there is a reply or ctx ends; it returns the reply's round-trip time.
func (p *Pinger) Reach(ctx context.Context, to netip.Addr) (time.Duration, error) {
	for seq := 1; ; seq++ {
		try, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		took, err := p.Once(try, to, seq)
		<-waitUnless(try, err == nil)
		cancel()
		if err == nil || ctx.Err() != nil {
			return took, err
		}
	}
}

// waitUnless waits for the rest of an interval or until ctx ends, so that a request that fails at once is not repeated
// at once.
func waitUnless(ctx context.Context, now bool) <-chan struct{} {
	if !now {
		return ctx.Done()
	}
	ready := make(chan struct{})
	close(ready)
	return ready
}

func (p *Pinger) send(to netip.Addr, seq int) error {
	m := icmp.Message{Type: p.family.request, Body: &icmp.Echo{ID: p.id, Seq: seq & 0xffff, Data: payload}}
	b, err := m.Marshal(nil) // the kernel completes the checksum of ICMPv6
	if err != nil {
		return fmt.Errorf("ping %s: %w", to, err)
	}
	if _, err := p.conn.WriteTo(b, &net.IPAddr{IP: to.AsSlice(), Zone: to.Zone()}); err != nil {
		return fmt.Errorf("ping %s: %w", to, err)
	}
	return nil
}

// arrival is a reply to the request seq.
type arrival struct {
	seq int
	at  time.Time // the kernel's timestamp, which does not depend on the scheduling of this process
}

// stampArrivals makes the kernel timestamp received packets.
func stampArrivals(c *net.IPConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	failure := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1)
	})
	return errors.Join(failure, err)
}

// receive returns the next reply to one of the Pinger's requests.
func (p *Pinger) receive() (arrival, error) {
	buffer := make([]byte, 2048)
	control := make([]byte, 128)
	for {
		n, extra, _, _, err := p.conn.ReadMsgIP(buffer, control)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return arrival{}, errors.New("no answer")
		}
		if err != nil {
			return arrival{}, err
		}
		m, err := icmp.ParseMessage(p.family.protocol, p.family.payload(buffer[:n]))
		if err != nil || m.Type != p.family.reply {
			continue
		}
		if echo, ok := m.Body.(*icmp.Echo); ok && echo.ID == p.id && bytes.Equal(echo.Data, payload) {
			at, err := arrivedAt(control[:extra])
			return arrival{echo.Seq, at}, err
		}
	}
}

// payload strips the IP header, which the kernel includes for IPv4 only.
func (f family) payload(b []byte) []byte {
	if f != v4 {
		return b
	}
	h, err := ipv4.ParseHeader(b)
	if err != nil {
		return nil
	}
	return b[h.Len:]
}

// arrivedAt returns the kernel's receive timestamp.
func arrivedAt(control []byte) (time.Time, error) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return time.Time{}, fmt.Errorf("time stamp of an answer: %w", err)
	}
	for _, m := range messages {
		if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_TIMESTAMPNS &&
			len(m.Data) >= int(unsafe.Sizeof(unix.Timespec{})) {
			var at unix.Timespec
			copy(unsafe.Slice((*byte)(unsafe.Pointer(&at)), unsafe.Sizeof(at)), m.Data)
			return time.Unix(at.Unix()), nil
		}
	}
	return time.Time{}, errors.New("an answer has no time stamp")
}
