package memif

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// controlRoom holds more descriptors than a message may have, so that a second one is seen and closed; the kernel
// closes descriptors that do not fit.
var controlRoom = unix.CmsgSpace(4*4) + unix.CmsgSpace(unix.SizeofUcred)

// parting is how long a client that was told of the end of its connection has to hang up, before its memory is emptied
// under it.
const parting = 500 * time.Millisecond

// maxUnread is more than a client may send ahead: INIT, its regions and rings, CONNECT.
const maxUnread = 2 + 256 + 2*maxQueues

// longAgo is a deadline that has passed.
var longAgo = time.Unix(1, 0)

var errMessageSize = errors.New("malformed message")

// errBrokerGone ends a receive when the broker process has ended: the client may still be there.
var errBrokerGone = errors.New("memif broker ended")

// isMalformed reports whether a receive failed because of the message, and not because the connection has ended.
func isMalformed(err error) bool { return errors.Is(err, errMessageSize) }

// control is the socket between client and server, or the relay to it.
type control struct {
	socket *packetSocket
	client *brokeredClient // nil: the socket is the peer's

	mu          sync.Mutex // guards what follows, and socket for interrupt
	interrupted bool
}

// peer returns the process and user of the peer.
func (c *control) peer() (pid, uid int) {
	uid = -1
	c.use(func(fd int) {
		if cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
			uid = int(cred.Uid)
		}
	})
	return pid, uid
}

// isHungUp reports whether the peer has closed its end.
func (c *control) isHungUp() bool {
	hungUp := true
	c.use(func(fd int) {
		look := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		n, err := unix.Poll(look, 0)
		hungUp = n == 1 && err == nil && look[0].Revents&(unix.POLLHUP|unix.POLLRDHUP|unix.POLLERR) != 0
	})
	return hungUp
}

// use calls f with the peer's socket, unless that is closed.
func (c *control) use(f func(fd int)) {
	if c.client != nil {
		c.client.use(f)
		return
	}
	raw, err := c.socket.SyscallConn()
	if err == nil {
		_ = raw.Control(func(fd uintptr) { f(int(fd)) })
	}
}

// interrupt ends a receive that is under way, and all later ones.
func (c *control) interrupt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.socket.SetReadDeadline(longAgo)
	if c.client != nil && !c.interrupted {
		close(c.client.stop)
	}
	c.interrupted = true
}

// receiveUntil ends receives at a time, unless they are interrupted.
func (c *control) receiveUntil(deadline time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.interrupted {
		return nil
	}
	return c.socket.SetReadDeadline(deadline)
}

// established tells the broker process, if there is one, that the client is no longer pending.
func (c *control) established() error {
	if c.client == nil {
		return nil
	}
	c.client.establish()
	err := c.socket.send(relayEstablished)
	if hasHungUp(err) {
		return nil // the next process gets the connection as an established one
	}
	return err
}

// rejoinPause is the time between two looks at a client that no broker process serves.
const rejoinPause = time.Second

// rejoin waits for the relay of the next broker process; false: the connection was interrupted, cannot be resumed, or
// the client has hung up.
func (c *control) rejoin() bool {
	look := time.NewTicker(rejoinPause)
	defer look.Stop()
	for {
		select {
		case relay, open := <-c.client.relays:
			return open && c.reconnect(relay)
		case <-c.client.stop:
			return false
		case <-look.C:
			if c.isHungUp() {
				return false
			}
		}
	}
}

// reconnect continues with another relay; false: the connection was interrupted.
func (c *control) reconnect(relay *packetSocket) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.socket.Close()
	c.socket = relay
	return !c.interrupted
}

// send passes one message, and a descriptor unless fd is negative.
func (c *control) send(m *message, fd int) error {
	if fd >= 0 {
		return c.socket.send(m[:], fd)
	}
	return c.socket.send(m[:])
}

// receive waits for one message. The descriptor that came with it, -1 if none, is the caller's.
func (c *control) receive() (*message, int, error) {
	// One byte more than a message, to detect longer messages.
	buf := make([]byte, messageSize+1)
	oob := make([]byte, controlRoom)
	n, oobn, _, _, err := c.socket.ReadMsgUnix(buf, oob)
	if errors.Is(err, unix.ECONNRESET) {
		// The peer hung up with unread messages. Its reason, if any, follows the error.
		n, oobn, _, _, err = c.socket.ReadMsgUnix(buf, oob)
	}
	// An empty message reads as the end of the connection, and may carry descriptors all the same.
	fds := descriptors(oob[:oobn])
	switch {
	case c.client != nil && err == nil && n == len(relayGone):
		err = io.EOF
	case c.client != nil && err != nil:
		err = errBrokerGone
	case err == nil && (n != messageSize || len(fds) > 1):
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

// part sends the reason and waits for the peer to hang up.
func (c *control) part(why *DisconnectError, timeout time.Duration) {
	if c.send(disconnection(why), -1) == nil && c.socket.SetReadDeadline(time.Now().Add(timeout)) == nil {
		c.drain()
	}
}

// hangUp sends the reason, unless why is nil, and closes the socket. It reads pending messages first: otherwise the
// peer would get an error before the reason.
func (c *control) hangUp(why *DisconnectError) {
	if why != nil {
		_ = c.send(disconnection(why), -1)
	}
	if c.client != nil {
		c.client.end()
		_ = c.socket.Close()
		return
	}
	_ = c.socket.CloseRead()
	_ = c.socket.SetReadDeadline(time.Time{})
	c.drain()
	_ = c.socket.Close()
}

// drain reads until the end, and closes the descriptors that it gets.
func (c *control) drain() {
	for range maxUnread {
		_, fd, err := c.receive()
		if fd >= 0 {
			_ = unix.Close(fd)
		}
		if err != nil && !isMalformed(err) {
			return
		}
	}
}
