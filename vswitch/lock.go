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

	"github.com/weftnet/weft/memif"
)

// ErrRunning means that another dataplane runs on the API socket.
var ErrRunning = errors.New("a dataplane runs on this API socket already")

// LockPath returns the path of the lock file for an API socket. A running dataplane holds a flock on the file, which
// contains its PID in the first line and its name, if any, in the second.
func LockPath(apiSocket string) string { return apiSocket + ".lock" }

// StandbyPath returns the path of the lock file of the next standby, with the content of LockPath.
func StandbyPath(apiSocket string) string { return apiSocket + ".standby" }

// lock is an open lock file. A released lock keeps its file: with removal two processes could hold it.
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

// take takes the lock for a process of that name, or returns ErrRunning with the holder.
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

// retake is the interval at which a standby tries to take the lock after the holder closed its socket.
const retake = 5 * time.Millisecond

// redial is shorter than the server's timeout for the first request.
const redial = 5 * time.Second

// await takes the lock as soon as it is free. While the holder serves the socket, it waits for the end of a connection.
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

// awaitHangUp returns when a connection to the socket ends, or at once if it cannot connect.
func awaitHangUp(ctx context.Context, socket string) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if conn.SetReadDeadline(time.Now().Add(redial)) == nil {
		_, _ = conn.Read(make([]byte, 1)) // the server never sends first
	}
}

// awaitTurn takes the lock of an API socket when its holder ends, and returns the dataplane that the holder handed
// over; nil: none. Standbys queue on StandbyPath.
func (l *lock) awaitTurn(ctx context.Context, c Config, broker *memif.Broker) (*dataplane, error) {
	queue, err := openLock(StandbyPath(c.APISocket))
	if err != nil {
		return nil, err
	}
	defer queue.release()
	if err := queue.take(c.Name); errors.Is(err, ErrRunning) {
		c.Log.Info("standby waits behind another standby", "socket", c.APISocket, "standby", holderOf(queue.path))
	}
	if err := queue.await(ctx, c.Name, ""); err != nil {
		return nil, err
	}
	began := time.Now()
	c.Log.Info("standby waits for the end of the active dataplane", "socket", c.APISocket, "active", holderOf(l.path),
		"pid", os.Getpid())
	inherited, err := l.awaitOrInherit(ctx, c, broker)
	if err != nil {
		return nil, err
	}
	c.Log.Info("standby takes over", "socket", c.APISocket, "waited", time.Since(began).Round(time.Millisecond),
		"state", inherited != nil)
	return inherited, nil
}

// release releases the lock, if it is held, and closes the file. It may be called again.
func (l *lock) release() {
	if l.held {
		_ = l.file.Truncate(0) // the PID is no longer the holder's
	}
	l.held = false
	_ = l.file.Close() // releases the flock
}

// write truncates after writing, so that the file of a held lock is never empty.
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
