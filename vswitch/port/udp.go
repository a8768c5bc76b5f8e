package port

import (
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// udpQueue is how much memory the kernel may hold in datagrams that wait for us, and that the link has not sent yet.
	udpQueue = 8 << 20
	// udpTTL is what VPP gives to envelopes.
	udpTTL = 254
)

// UDP is a socket of the machine's own network that carries tunnels. What it is given to transmit are IP packets with
// UDP headers; it sends what is in them, and the kernel writes the headers. Packets of the same length to the same
// destination, as the segments of a TCP flow are, go as one (UDP_SEGMENT), and come so (UDP_GRO). One goroutine
// receives; any may transmit; Close is for when none does any more.
type UDP struct {
	fd       int
	local    netip.AddrPort
	segments atomic.Bool  // the kernel cuts what it is given
	probed   atomic.Int64 // when the address was looked for last, in seconds
	receive  *udpBatch
}

// OpenUDP binds a socket to a unicast address that the machine has.
func OpenUDP(local netip.AddrPort) (*UDP, error) {
	family := unix.AF_INET
	if local.Addr().Is6() {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open UDP socket: %w", err)
	}
	u := &UDP{fd: fd, local: local, receive: new(udpBatch)}
	u.segments.Store(true)
	if err := u.setUp(); err != nil {
		return nil, errors.Join(fmt.Errorf("open UDP socket on %s: %w", local, err), u.Close())
	}
	u.receive.prepare()
	return u, nil
}

// setUp sets the socket's options and binds it, which comes last: from then on it fills.
func (u *UDP) setUp() error {
	options := []socketOption{
		{"IP_MTU_DISCOVER", unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DONT}, // DF is not set
		{"IP_TTL", unix.IPPROTO_IP, unix.IP_TTL, udpTTL},
		{"UDP_GRO", unix.SOL_UDP, unix.UDP_GRO, 1},
	}
	if u.local.Addr().Is6() {
		options = []socketOption{
			{"IPV6_V6ONLY", unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1},
			{"IPV6_MTU_DISCOVER", unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DONT},
			{"IPV6_UNICAST_HOPS", unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, udpTTL + 1},
			{"UDP_NO_CHECK6_RX", unix.SOL_UDP, unix.UDP_NO_CHECK6_RX, 1}, // RFC 6935
			{"UDP_GRO", unix.SOL_UDP, unix.UDP_GRO, 1},
		}
	}
	for _, o := range options {
		if err := unix.SetsockoptInt(u.fd, o.level, o.option, o.value); err != nil {
			return fmt.Errorf("set %s: %w", o.name, err)
		}
	}
	// Without CAP_NET_ADMIN in the first user namespace the system's limit holds, which will do.
	for _, o := range []int{unix.SO_RCVBUFFORCE, unix.SO_SNDBUFFORCE, unix.SO_RCVBUF, unix.SO_SNDBUF} {
		_ = unix.SetsockoptInt(u.fd, unix.SOL_SOCKET, o, udpQueue)
	}
	if err := unix.Bind(u.fd, socketAddress(u.local)); err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	return nil
}

type socketOption struct {
	name                 string
	level, option, value int
}

func socketAddress(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
}

// Local returns what the socket is bound to.
func (u *UDP) Local() netip.AddrPort { return u.local }

// Takes says that frames in envelopes must be complete.
func (u *UDP) Takes() Offload { return Offload{} }

// Descriptor becomes readable when there is something to receive.
func (u *UDP) Descriptor() int { return u.fd }

// Arm is not needed: the kernel's readiness is level triggered.
func (u *UDP) Arm(bool) bool { return false }

// Close ends the socket.
func (u *UDP) Close() error { return unix.Close(u.fd) }

// lost says that the socket is of no use any more after errno, which sending said of one packet alone: the machine does not
// have the address any more. The kernel says the same of destinations that cannot be reached, which cost no other.
func (u *UDP) lost(errno unix.Errno) bool {
	switch errno {
	case unix.EBADF, unix.ENOTSOCK:
		return true
	case unix.EINVAL, unix.EADDRNOTAVAIL, unix.ENETUNREACH, unix.EHOSTUNREACH, unix.ENETDOWN:
		now, last := time.Now().Unix(), u.probed.Load()
		return now != last && u.probed.CompareAndSwap(last, now) && addressGone(u.local.Addr())
	}
	return false
}

// addressGone looks whether the machine has an address, by binding to it.
func addressGone(a netip.Addr) bool {
	probe, err := OpenUDP(netip.AddrPortFrom(a, 0))
	if err != nil {
		return errors.Is(err, unix.EADDRNOTAVAIL)
	}
	_ = probe.Close()
	return false
}
