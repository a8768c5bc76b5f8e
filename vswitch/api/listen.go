package api

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrInUse means that another server listens on the socket.
var ErrInUse = errors.New("another server listens on the socket")

// Listen listens on the unix socket at path, which only the owner can access. It replaces the socket of a process that has
// ended; any other file at that path is an error. The socket appears at path when it accepts connections already.
// Close removes it.
func Listen(ctx context.Context, path string) (net.Listener, error) {
	return ListenOn(ctx, "unix", path)
}

// ListenOn is Listen for the given network, unix or unixpacket.
func ListenOn(ctx context.Context, network, path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("make directory of %s: %w", path, err)
	}
	if err := removeStale(ctx, network, path); err != nil {
		return nil, err
	}
	// The mode of the socket before bind, less the umask, becomes the mode of the file: a chmod after bind would
	// let other users connect in between.
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		if err := c.Control(func(fd uintptr) { failed = unix.Fchmod(int(fd), 0o600) }); err != nil {
			return err
		}
		return failed
	}}
	temporary := path + ".new"
	if err := removeStale(ctx, network, temporary); err != nil {
		return nil, err
	}
	l, err := config.Listen(ctx, network, temporary)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	if err := os.Rename(temporary, path); err != nil {
		return nil, errors.Join(fmt.Errorf("rename socket to %s: %w", path, err), l.Close())
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // it would unlink the temporary path
	return &listener{Listener: l, path: path}, nil
}

// listener removes its socket when it is closed.
type listener struct {
	net.Listener
	path   string
	remove sync.Once
}

// Close removes the socket first, so that clients do not find a closed socket.
func (l *listener) Close() error {
	var err error
	l.remove.Do(func() { err = os.Remove(l.path) })
	return errors.Join(err, l.Listener.Close())
}

// removeStale removes a socket on which no process listens.
func removeStale(ctx context.Context, network, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("check %s: %w", path, err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s is not a socket: remove it or choose another path", path)
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, path)
	if err == nil {
		return errors.Join(fmt.Errorf("%s: %w", path, ErrInUse), conn.Close())
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("check whether a server listens on %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove stale %s: %w", path, err)
	}
	return nil
}
