package memif

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// controlRoom holds more descriptors than a message may have, so that a second one is seen and closed; the kernel closes
// what does not fit.
var controlRoom = unix.CmsgSpace(4*4) + unix.CmsgSpace(unix.SizeofUcred)

// sendTimeout bounds how long a peer that does not read holds up a message.
const sendTimeout = 2 * time.Second

// maxUnread is more than a client may send ahead: INIT, its regions and rings, CONNECT.
const maxUnread = 2 + 256 + 2*maxQueues

var errMessageSize = errors.New("malformed message")

// control is the socket between client and server.
type control struct {
	socket *net.UnixConn
}

// isHungUp reports whether the peer has closed its end.
func (c *control) isHungUp() (hungUp bool) {
	raw, err := c.socket.SyscallConn()
	if err != nil {
		return true
	}
	err = raw.Control(func(fd uintptr) {
		look := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		n, err := unix.Poll(look, 0)
		hungUp = n == 1 && err == nil && look[0].Revents&(unix.POLLHUP|unix.POLLRDHUP|unix.POLLERR) != 0
	})
	return hungUp || err != nil
}

// interrupt ends a receive that is under way, and all later ones.
func (c *control) interrupt() { _ = c.socket.CloseRead() }

// send passes one message, and a descriptor unless fd is negative.
func (c *control) send(m *message, fd int) error {
	var rights []byte
	if fd >= 0 {
		rights = unix.UnixRights(fd)
	}
	if err := c.socket.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
		return fmt.Errorf("send control message: %w", err)
	}
	if _, _, err := c.socket.WriteMsgUnix(m[:], rights, nil); err != nil {
		return fmt.Errorf("send control message: %w", err)
	}
	return nil
}

// receive waits for one message. The descriptor that came with it, -1 if none, is the caller's.
func (c *control) receive() (*message, int, error) {
	// One byte more than a message has: a longer one is told from a right one.
	buf := make([]byte, messageSize+1)
	oob := make([]byte, controlRoom)
	n, oobn, _, _, err := c.socket.ReadMsgUnix(buf, oob)
	if errors.Is(err, unix.ECONNRESET) {
		// The peer hung up on something that it had not read. It may have said why: that comes behind the error.
		n, oobn, _, _, err = c.socket.ReadMsgUnix(buf, oob)
	}
	// An empty message reads as the end of the connection, and may carry descriptors all the same.
	fds := descriptors(oob[:oobn])
	if err == nil && (n != messageSize || len(fds) > 1) {
		err = errMessageSize
	}
	if err != nil {
		closeAll(fds)
		return nil, -1, fmt.Errorf("receive control message: %w", err)
	}
	fd := -1
	if len(fds) == 1 {
		fd = fds[0]
	}
	return (*message)(buf), fd, nil
}

// descriptors steps over what else the kernel adds, such as credentials.
func descriptors(oob []byte) []int {
	if len(oob) == 0 {
		return nil
	}
	messages, err := syscall.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	var all []int
	for i := range messages {
		if fds, err := syscall.ParseUnixRights(&messages[i]); err == nil {
			all = append(all, fds...)
		}
	}
	return all
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// hangUp says why, unless why is nil, and closes the socket. What the peer sent meanwhile is read, or the reason would be
// behind an error.
func (c *control) hangUp(why *DisconnectError) {
	if why != nil {
		_ = c.send(disconnection(why), -1)
	}
	_ = c.socket.CloseRead()
	for range maxUnread {
		_, fd, err := c.receive()
		if fd >= 0 {
			_ = unix.Close(fd)
		}
		if err != nil && !errors.Is(err, errMessageSize) {
			break
		}
	}
	_ = c.socket.Close()
}
