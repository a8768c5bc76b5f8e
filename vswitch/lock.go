package vswitch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// ErrRunning means that another dataplane runs on the API socket.
var ErrRunning = errors.New("a dataplane runs on this API socket already")

// LockPath is the lock file beside an API socket. While a dataplane runs it holds a flock on the file, which has its pid in the first
// line and its name, if it has one, in the second.
func LockPath(apiSocket string) string { return apiSocket + ".lock" }

// StandbyPath is the lock file of the standby that takes over next, in the form of LockPath.
func StandbyPath(apiSocket string) string { return apiSocket + ".standby" }

// lock is an open lock file. The file stays when the lock is released: removing it would let two take it.
type lock struct {
	path string
	file *os.File
	held bool
}

func openLock(path string) (*lock, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("make directory of lock file: %w", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock file: %w", err)
	}
	return &lock{path: path, file: f}, nil
}

// take takes the lock for a process with that name, or returns ErrRunning with the process that holds it.
func (l *lock) take(name string) error {
	if err := l.try(name); err != nil || l.held {
		return err
	}
	return fmt.Errorf("%w: %s is held by %s", ErrRunning, l.path, holderOf(l.path))
}

// try takes the lock if it is free.
func (l *lock) try(name string) error {
	err := unix.Flock(int(l.file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("lock %s: %w", l.path, err)
	}
	l.held = true
	if err := l.write(name); err != nil {
		return fmt.Errorf("write lock file: %w", err)
	}
	return nil
}

// retake is the time between two attempts of a standby to take a lock, once the dataplane that holds it has closed its socket.
const retake = 5 * time.Millisecond

// redial is less than a server gives a client for its first request.
const redial = 5 * time.Second

// await takes the lock as soon as it is free. While the holder serves the socket it waits for the end of a connection.
func (l *lock) await(ctx context.Context, name, socket string) error {
	tick := time.NewTicker(retake)
	defer tick.Stop()
	for {
		if err := l.try(name); err != nil || l.held {
			return err
		}
		awaitHangUp(ctx, socket)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// awaitHangUp returns when a connection to the socket ends, at once if there is none.
func awaitHangUp(ctx context.Context, socket string) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if conn.SetReadDeadline(time.Now().Add(redial)) == nil {
		_, _ = conn.Read(make([]byte, 1)) // the server says nothing unasked
	}
}

// awaitTurn takes the lock of an API socket when the dataplane that holds it ends. Standbys wait one behind the other.
func (l *lock) awaitTurn(ctx context.Context, c Config) error {
	queue, err := openLock(StandbyPath(c.APISocket))
	if err != nil {
		return err
	}
	defer queue.release()
	if err := queue.take(c.Name); errors.Is(err, ErrRunning) {
		c.Log.Info("standby waits behind another standby", "socket", c.APISocket, "standby", holderOf(queue.path))
	}
	if err := queue.await(ctx, c.Name, ""); err != nil {
		return err
	}
	began := time.Now()
	c.Log.Info("standby waits for the end of the active dataplane", "socket", c.APISocket, "active", holderOf(l.path), "pid", os.Getpid())
	if err := l.await(ctx, c.Name, c.APISocket); err != nil {
		return err
	}
	c.Log.Info("standby takes over", "socket", c.APISocket, "waited", time.Since(began).Round(time.Millisecond))
	return nil
}

// release releases the lock, if it is held, and closes the file. It may be repeated.
func (l *lock) release() {
	if l.held {
		_ = l.file.Truncate(0) // the pid is no longer that of the holder
	}
	l.held = false
	_ = l.file.Close() // releases the flock
}

// write writes before it truncates: there is no moment with a lock that is held and an empty file.
func (l *lock) write(name string) error {
	text := fmt.Appendf(nil, "%d\n", os.Getpid())
	if name != "" {
		text = fmt.Appendf(text, "%s\n", name)
	}
	if _, err := l.file.WriteAt(text, 0); err != nil {
		return err
	}
	return l.file.Truncate(int64(len(text)))
}
