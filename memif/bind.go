package memif

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// backlog is how many clients may wait to be accepted.
const backlog = 64

// bind makes the listening socket. Its file has its mode before anyone can connect.
func bind(path string, mode fs.FileMode) (*net.UnixListener, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("make socket: %w", err)
	}
	socket := os.NewFile(uintptr(fd), path)
	defer socket.Close()
	if !isAbstract(path) {
		err = bindFile(fd, path, mode)
	} else {
		err = unix.Bind(fd, &unix.SockaddrUnix{Name: path})
	}
	if err != nil {
		return nil, err
	}
	if err := unix.Listen(fd, backlog); err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	l, err := net.FileListener(socket)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return l.(*net.UnixListener), nil
}

func isAbstract(path string) bool { return strings.HasPrefix(path, "@") }

func bindFile(fd int, path string, mode fs.FileMode) error {
	if mode == 0 {
		var err error
		if mode, err = modeFor(filepath.Dir(path)); err != nil {
			return err
		}
	}
	if err := removeStale(path); err != nil {
		return err
	}
	// The file gets the socket's mode, less the umask: it is never wider than asked for.
	if err := unix.Fchmod(fd, uint32(mode.Perm())); err != nil {
		return fmt.Errorf("set mode of socket: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	if info, err := os.Lstat(path); err != nil || info.Mode().Perm() == mode.Perm() {
		return err
	}
	if err := os.Chmod(path, mode.Perm()); err != nil {
		return fmt.Errorf("set mode: %w", err)
	}
	return nil
}

// modeFor lets connect who may enter the directory.
func modeFor(directory string) (fs.FileMode, error) {
	info, err := os.Stat(directory)
	if err != nil {
		return 0, fmt.Errorf("read mode of directory: %w", err)
	}
	mode := fs.FileMode(0o600)
	if info.Mode()&0o010 != 0 {
		mode |= 0o060
	}
	if info.Mode()&0o001 != 0 {
		mode |= 0o006
	}
	return mode, nil
}

// removeStale removes a socket of our kind that nobody listens on; anything else is somebody's.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for stale socket: %w", err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%w: not a socket", syscall.EADDRINUSE)
	}
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err == nil {
		_ = c.Close()
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("%w: somebody listens", syscall.EADDRINUSE)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove stale socket: %w", err)
	}
	return nil
}
