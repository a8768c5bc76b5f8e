// Package traffic sends data between network namespaces and compares it with the received data.
package traffic

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/test/netns"
)

// Listener opens sockets that are bound to a link; "" binds to none. Its ListenPacket is for senders too.
func Listener(link string) *net.ListenConfig { return &net.ListenConfig{Control: bind(link)} }

// Dialer connects sockets that are bound to a link; "" binds to none.
func Dialer(link string) *net.Dialer { return &net.Dialer{Control: bind(link)} }

func bind(link string) func(string, string, syscall.RawConn) error {
	if link == "" {
		return nil
	}
	return func(_, _ string, c syscall.RawConn) (err error) {
		if failure := c.Control(func(fd uintptr) { err = unix.BindToDevice(int(fd), link) }); failure != nil {
			return failure
		}
		return err
	}
}

// Inside runs f in the namespace at path; "" is the caller's own.
func Inside(path string, f func() error) error {
	if path == "" {
		return f()
	}
	return netns.Do(path, f)
}
