package pathmtu

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

// The first question, and the last one, are asked more often than those between them: a packet that was lost for
// another reason must not make a path narrow.
const (
	attempts            = 3
	attemptsWithin      = 2
	answerTimeout       = time.Second
	answerTimeoutWithin = 500 * time.Millisecond
)

// errSilent is the error of a node that answers no echo request.
var errSilent = errors.New("no answer to pings")

// Measure asks a node by echo requests that no router may fragment. They need no open port, and take the road of tunnel
// packets also if the dataplane owns the network card. The answer may come in fragments: over IPv4 only the path to the
// node is measured. ICMP errors of routers are not needed.
func Measure(ctx context.Context, p Path) (mtu int, err error) {
	c, err := open(ctx, p)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	if c.reaches(p.Needed, attempts, answerTimeout) {
		return p.Needed, nil
	}
	low := c.least() // it arrives
	if !c.reaches(low, attempts, answerTimeout) {
		return 0, errSilent
	}
	for high := p.Needed; high-low > 1; { // high does not
		middle := (low + high) / 2
		if c.reaches(middle, attemptsWithin, answerTimeoutWithin) {
			low = middle
		} else {
			high = middle
		}
	}
	if c.reaches(p.Needed, attempts, answerTimeout) {
		return p.Needed, nil
	}
	return low, ctx.Err()
}

// pinger sends echo requests to one node.
type pinger struct {
	*net.IPConn
	family family
	id     int
	seq    int
}

// family is what differs between ICMP and ICMPv6.
type family struct {
	network        string
	protocol       int
	header         int // bytes of IP and ICMP
	least          int // bytes that each path carries
	request, reply icmp.Type
	level, option  int // of a socket that does not fragment, whatever the kernel knows of the path
	value          int
}

var (
	family4 = family{
		network:  "ip4:icmp",
		protocol: 1,
		header:   ipv4.HeaderLen + 8,
		least:    576,
		request:  ipv4.ICMPTypeEcho,
		reply:    ipv4.ICMPTypeEchoReply,
		level:    unix.IPPROTO_IP, option: unix.IP_MTU_DISCOVER, value: unix.IP_PMTUDISC_PROBE,
	}
	family6 = family{
		network:  "ip6:ipv6-icmp",
		protocol: 58,
		header:   ipv6.HeaderLen + 8,
		least:    1280,
		request:  ipv6.ICMPTypeEchoRequest,
		reply:    ipv6.ICMPTypeEchoReply,
		level:    unix.IPPROTO_IPV6, option: unix.IPV6_MTU_DISCOVER, value: unix.IPV6_PMTUDISC_PROBE,
	}
)

func open(ctx context.Context, p Path) (*pinger, error) {
	f := family4
	if p.To.Is6() {
		f = family6
	}
	d := net.Dialer{
		LocalAddr: &net.IPAddr{IP: p.From.AsSlice()},
		ControlContext: func(_ context.Context, _, _ string, raw syscall.RawConn) error {
			var set error
			return errors.Join(
				raw.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), f.level, f.option, f.value) }), set)
		},
	}
	c, err := d.DialContext(ctx, f.network, p.To.String())
	if err != nil {
		return nil, fmt.Errorf("socket of pings: %w", err)
	}
	return &pinger{IPConn: c.(*net.IPConn), family: f, id: rand.N(1 << 16)}, nil
}

func (c *pinger) least() int { return c.family.least }

// reaches reports whether a request in a packet of a length is answered.
func (c *pinger) reaches(length, attempts int, answerTimeout time.Duration) bool {
	for range attempts {
		c.seq++
		m := icmp.Message{
			Type: c.family.request,
			Body: &icmp.Echo{ID: c.id, Seq: c.seq & 0xffff, Data: make([]byte, length-c.family.header)},
		}
		raw, err := m.Marshal(nil)
		if err != nil {
			return false
		}
		until := time.Now().Add(answerTimeout)
		if _, err = c.Write(raw); err == nil && c.answered(until, len(raw)) {
			return true
		}
		if errors.Is(err, net.ErrClosed) {
			return false
		}
	}
	return false
}

// answered waits for the answer to the last request. An ICMP error, which may concern an earlier request, does not end
// the wait.
func (c *pinger) answered(until time.Time, length int) bool {
	if c.SetReadDeadline(until) != nil {
		return false
	}
	buffer := make([]byte, 1<<16)
	for {
		n, _, err := c.ReadFrom(buffer)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, net.ErrClosed):
			return false
		case err != nil:
			continue
		}
		m, err := icmp.ParseMessage(c.family.protocol, buffer[:n])
		if err != nil || m.Type != c.family.reply {
			continue
		}
		if e, is := m.Body.(*icmp.Echo); is && e.ID == c.id && e.Seq == c.seq&0xffff && n == length {
			return true
		}
	}
}
