package memif

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// packetSocket is a Unix socket that keeps the borders of messages. The function send sends all messages of this
// package, and its deadline belongs to that one message: a deadline that stays behind would fail a later message that
// does not wait. Its senders may be several goroutines.
type packetSocket struct {
	*net.UnixConn

	sending sync.Mutex // held for one message, with its deadline
}

// sendTimeout bounds how long a peer that does not read holds up a message.
const sendTimeout = 2 * time.Second

// send passes one message with descriptors, which stay the caller's. It waits at most sendTimeout for the peer to read.
func (s *packetSocket) send(message []byte, fds ...int) error {
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	s.sending.Lock()
	defer s.sending.Unlock()
	if err := s.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
		return fmt.Errorf("send message: %w", err)
	}
	if _, _, err := s.WriteMsgUnix(message, rights, nil); err != nil {
		return fmt.Errorf("send message: %w", err)
	}
	return nil
}

// hasHungUp reports whether a message was not sent because the peer has closed its socket. The owner of this end learns
// that by a receive, too.
func hasHungUp(err error) bool {
	return errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, net.ErrClosed)
}

// socketPair makes two connected sockets that keep the borders of messages.
func socketPair() (own *packetSocket, other int, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, -1, fmt.Errorf("make socket pair: %w", err)
	}
	own, err = socketOf(fds[0])
	if err != nil {
		_ = unix.Close(fds[1])
		return nil, -1, err
	}
	return own, fds[1], nil
}

// socketOf takes a descriptor over.
func socketOf(fd int) (*packetSocket, error) {
	file := os.NewFile(uintptr(fd), "memif")
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, fmt.Errorf("use socket: %w", err)
	}
	socket, is := conn.(*net.UnixConn)
	if !is {
		return nil, errors.Join(errors.New("use socket: not a Unix socket"), conn.Close())
	}
	return &packetSocket{UnixConn: socket}, nil
}
