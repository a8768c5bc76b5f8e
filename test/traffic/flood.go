package traffic

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Count is the result of a flood of packets.
type Count struct {
	Sent, Received uint64
	Took           time.Duration
}

// Rate returns the arrived packets per second.
func (c Count) Rate() float64 { return float64(c.Received) / c.Took.Seconds() }

// batch is the number of frames per system call.
const batch = 64

// Flood sends IPv4 UDP in frames of 64 bytes for the duration, as fast as sendmmsg on a packet socket accepts them,
// without the cost of a UDP stack. It counts the packets that the receiver's link (toLink) received: they reach a UDP
// socket with a filter that drops them, so reading them is not measured.
func Flood(ctx context.Context, p Path, toLink string, duration time.Duration) (c Count, err error) {
	sink, err := p.sink(ctx)
	if err != nil {
		return c, err
	}
	defer sink.Close()
	frame, err := p.frame(ctx, sink.LocalAddr().String())
	if err != nil {
		return c, err
	}
	source, err := p.source()
	if err != nil {
		return c, err
	}
	defer unix.Close(source)
	before, err := p.received(toLink)
	if err != nil {
		return c, err
	}
	begun := time.Now()
	c.Sent, err = flood(source, frame, duration)
	c.Took = time.Since(begun)
	after, failure := p.received(toLink)
	c.Received = after - before
	return c, errors.Join(err, failure)
}

// sink opens the socket for the packets; without it the kernel would answer each with an ICMP error.
func (p Path) sink(ctx context.Context) (c *net.UDPConn, err error) {
	nothing, err := bpf.Assemble([]bpf.Instruction{bpf.RetConstant{Val: 0}})
	if err != nil {
		return nil, err
	}
	filter := make([]unix.SockFilter, len(nothing))
	for i, raw := range nothing {
		filter[i] = unix.SockFilter{Code: raw.Op, Jt: raw.Jt, Jf: raw.Jf, K: raw.K}
	}
	err = Inside(p.To, func() error {
		l, err := Listener("").ListenPacket(ctx, "udp", netip.AddrPortFrom(p.Address, 0).String())
		if err != nil {
			return err
		}
		c = l.(*net.UDPConn)
		return control(c, func(fd int) error {
			return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{
				Len:    uint16(len(filter)),
				Filter: &filter[0],
			})
		})
	})
	return c, err
}

// source opens a packet socket on the sender's link.
func (p Path) source() (fd int, err error) {
	err = Inside(p.From, func() error {
		link, err := net.InterfaceByName(p.FromLink)
		if err != nil {
			return fmt.Errorf("find link %s: %w", p.FromLink, err)
		}
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return fmt.Errorf("open packet socket: %w", err)
		}
		err = errors.Join(
			unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1),
			unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: link.Index}), // protocol 0: it receives nothing
		)
		if err != nil {
			return errors.Join(fmt.Errorf("bind packet socket: %w", err), unix.Close(fd))
		}
		return nil
	})
	return fd, err
}

func control(c *net.UDPConn, f func(fd int) error) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	failure := raw.Control(func(fd uintptr) { err = f(int(fd)) })
	return errors.Join(failure, err)
}

// received returns the number of packets that the receiver's link has received.
func (p Path) received(link string) (packets uint64, err error) {
	err = Inside(p.To, func() error {
		l, err := netlink.LinkByName(link)
		if err != nil {
			return fmt.Errorf("find link %s: %w", link, err)
		}
		packets = l.Attrs().Statistics.RxPackets
		return nil
	})
	return packets, err
}

// message is the kernel's struct mmsghdr.
type message struct {
	unix.Msghdr
	sent uint32
	_    [4]byte
}

// flood sends batches until the time is over. It repeats sends that the kernel refuses because a queue is full.
func flood(fd int, frame []byte, duration time.Duration) (sent uint64, err error) {
	piece := unix.Iovec{Base: &frame[0], Len: uint64(len(frame))}
	messages := make([]message, batch)
	for i := range messages {
		messages[i].Iov = &piece
		messages[i].Iovlen = 1
	}
	for begun := time.Now(); time.Since(begun) < duration; {
		n, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&messages[0])), batch, 0, 0,
			0)
		switch errno {
		case 0:
			sent += uint64(n)
		case unix.EAGAIN, unix.EINTR, unix.ENOBUFS:
		default:
			return sent, fmt.Errorf("send: %w", errno)
		}
	}
	return sent, nil
}
