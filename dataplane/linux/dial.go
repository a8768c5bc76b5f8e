package linux

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/wire"
)

// DialAbstract connects to the socket "@name" (SOCK_SEQPACKET) in a network namespace. It does not wait: a server with
// a full backlog refuses.
func DialAbstract(netns wire.Namespace, name string) (*net.UnixConn, error) {
	var conn *net.UnixConn
	err := inNamespace(netns.Path, netnsID{netns.Inode, netns.Device}, func(*handle) (err error) {
		conn, err = dialSeqpacket(name)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("connect to socket %s in network namespace %s: %w", name, netns.Path, err)
	}
	return conn, nil
}

func dialSeqpacket(name string) (*net.UnixConn, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), name)
	defer file.Close()
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: name}); err != nil {
		return nil, err
	}
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, err
	}
	return conn.(*net.UnixConn), nil
}
