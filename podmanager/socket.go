package podmanager

import (
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

// Listen opens the agent's socket, which only its owner may connect to from the
// first moment on. A socket that no process listens on is replaced; anything else at
// that path is left alone and an error. The socket goes with the listener.
func Listen(path string) (net.Listener, error) {
	if err := refuseOccupied(path); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	listener, err := bindPrivately(path)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	listener.SetUnlinkOnClose(false) // it knows the name that it was bound to only
	made, err := os.Lstat(path)
	if err != nil {
		_ = listener.Close()
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	return &socket{UnixListener: listener, path: path, made: made}, nil
}

// socket removes its file when it is closed, if that is still its own.
type socket struct {
	*net.UnixListener
	path   string
	made   fs.FileInfo
	remove sync.Once
}

// Close stops listening.
func (s *socket) Close() error {
	s.remove.Do(func() {
		if now, err := os.Lstat(s.path); err == nil && os.SameFile(now, s.made) {
			_ = os.Remove(s.path)
		}
	})
	return s.UnixListener.Close()
}

// refuseOccupied returns nil if path is free, or a socket whose owner has gone.
func refuseOccupied(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("something else is there: %s", info.Mode())
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	switch {
	case err == nil:
		_ = conn.Close()
		return errors.New("another process listens there")
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return err
}

// bindPrivately binds in a directory that only we can enter and moves the socket
// into place when its mode is set: a umask would be that of all goroutines.
func bindPrivately(path string) (*net.UnixListener, error) {
	private, err := os.MkdirTemp(filepath.Dir(path), ".") // short, as a socket's path has 107 bytes
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(private) }()
	temp := filepath.Join(private, "s")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: temp, Net: "unix"})
	if err != nil {
		return nil, err
	}
	err = os.Chmod(temp, 0o600)
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		_ = listener.Close()
		return nil, err
	}
	return listener, nil
}
