package linux

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/wire"
)

// abstractSize is the size of the name of an abstract socket with its first NUL.
const abstractSize = 108

// DialAbstract connects to the socket "@name" (SOCK_SEQPACKET) in a network namespace. Programs that bind a whole sockaddr_un, such as
// DPDK's net_memif, pad the name with NULs, which are part of it: both names are tried.
func DialAbstract(netns wire.Namespace, name string) (*net.UnixConn, error) {
	padded := name + strings.Repeat("\x00", max(abstractSize-len(name), 0))
	var conn *net.UnixConn
	err := inNamespace(netns.Path, netnsID{netns.Inode, netns.Device}, func(*handle) (err error) {
		if conn, err = dialSeqpacket(name); errors.Is(err, unix.ECONNREFUSED) {
			conn, err = dialSeqpacket(padded)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("connect to socket %s in network namespace %s: %w", name, netns.Path, err)
	}
	return conn, nil
}

// dialSeqpacket does not wait: a server with a full backlog refuses.
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
