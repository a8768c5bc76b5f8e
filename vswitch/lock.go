package vswitch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrRunning means that another dataplane runs on the API socket.
var ErrRunning = errors.New("a dataplane runs on this API socket already")

// LockPath is the lock file beside an API socket. While a dataplane runs it holds a flock on the file, which says its pid.
func LockPath(apiSocket string) string { return apiSocket + ".lock" }

// lock is a held lock file.
type lock struct{ file *os.File }

// takeLock takes the lock of an API socket, or says who has it. The file stays when the lock is released: removing
// it would let two take it.
func takeLock(apiSocket string) (*lock, error) {
	path := LockPath(apiSocket)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("make directory of lock file: %w", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock file: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w: %s is held by pid %s", ErrRunning, path, holder(path))
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	if err := writePID(f); err != nil {
		return nil, errors.Join(fmt.Errorf("write lock file: %w", err), f.Close())
	}
	return &lock{file: f}, nil
}

// release lets the next one in.
func (l *lock) release() {
	_ = l.file.Truncate(0) // a pid that is not ours any more helps nobody
	_ = l.file.Close()     // releases the flock
}

func writePID(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
	return err
}

// holder reads the pid in a lock file.
func holder(path string) string {
	b, err := os.ReadFile(path)
	if pid := strings.TrimSpace(string(b)); err == nil && pid != "" {
		return pid
	}
	return "(unknown)"
}
