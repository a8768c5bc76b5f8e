// Package unixsocket creates listening Unix sockets that only their owner can connect to.
package unixsocket

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
	"time"
)

// ErrInUse means that another process listens on the socket.
var ErrInUse = errors.New("another process listens on the socket")

// dialTimeout is the timeout of the connection that shows whether a socket is stale.
const dialTimeout = time.Second

// Listen creates a socket at path. The network is unix or unixpacket. Listen replaces a stale socket. It fails with
// ErrInUse if another process listens on the socket, and it fails if path is another file. A client that finds the
// socket can connect: it listens under a temporary name first. Closing the listener removes the socket unless another
// file replaced it.
func Listen(ctx context.Context, network, path string) (net.Listener, error) {
	// Always the same temporary name: the next Listen removes the socket of a process that was killed before the
	// rename.
	temp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path))
	for _, name := range []string{path, temp} {
		if err := checkStale(ctx, network, name); err != nil {
			return nil, fmt.Errorf("listen on %s: %w", name, err)
		}
	}
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	socket, err := Bind(ctx, network, temp)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	l := &listener{UnixListener: socket, path: temp}
	l.created, err = os.Lstat(temp)
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen on %s: %w", path, err), l.Close())
	}
	l.path = path
	return l, nil
}

// Bind creates a socket at path, where no file may exist. Closing the listener does not remove the socket.
func Bind(ctx context.Context, network, path string) (*net.UnixListener, error) {
	config := net.ListenConfig{Control: restrict}
	l, err := config.Listen(ctx, network, path)
	if err != nil {
		return nil, err
	}
	socket := l.(*net.UnixListener)
	socket.SetUnlinkOnClose(false)
	return socket, nil
}

// listener removes its file on Close unless the file was replaced.
type listener struct {
	*net.UnixListener
	path    string
	created fs.FileInfo
	remove  sync.Once
}

// Close removes the socket first: a client that finds the socket can connect.
func (l *listener) Close() error {
	l.remove.Do(func() {
		if info, err := os.Lstat(l.path); err == nil && os.SameFile(info, l.created) {
			_ = os.Remove(l.path)
		}
	})
	return l.UnixListener.Close()
}

// checkStale returns nil if path does not exist or is a socket without a listener. It completes if ctx ends: the caller
// of Listen then gets a listener to close, not an error to report.
func checkStale(ctx context.Context, network, path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("the path is not a socket (%s): remove it or choose another path", info.Mode())
	}
	conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(context.WithoutCancel(ctx), network, path)
	switch {
	case err == nil:
		return errors.Join(ErrInUse, conn.Close())
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return fmt.Errorf("check for another listener: %w", err)
}

// restrict sets the mode of a socket before bind. The file inherits it, less the umask: no other user can connect
// before a chmod, and no other user can replace the path of a chmod.
func restrict(_, _ string, socket syscall.RawConn) error {
	var failed error
	if err := socket.Control(func(fd uintptr) { failed = syscall.Fchmod(int(fd), 0o600) }); err != nil {
		return err
	}
	return failed
}
