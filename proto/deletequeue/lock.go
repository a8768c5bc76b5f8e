package deletequeue

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// lockPoll is the interval of attempts to lock: writers hold the lock for a few milliseconds.
const lockPoll = 5 * time.Millisecond

// dirLock is the flock of a queue's directory. Several users of one queue share its exclusive lock.
type dirLock struct {
	dir string

	mu      sync.Mutex
	held    *os.File // the directory under its exclusive lock
	holders int      // number of users of held
}

// take takes the directory's flock. If this queue already holds it exclusively, take only counts another user.
func (l *dirLock) take(ctx context.Context, how int) (func(), error) {
	if l.join() {
		return once(l.leave), nil
	}
	dir, err := l.flock(ctx, how)
	if err != nil {
		return nil, err
	}
	if how == syscall.LOCK_SH {
		return once(func() { _ = dir.Close() }), nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = dir
	l.holders = 1
	return once(l.leave), nil
}

func (l *dirLock) join() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held != nil {
		l.holders++
	}
	return l.held != nil
}

// leave releases the lock after its last user: closing the only descriptor releases the flock.
func (l *dirLock) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holders--; l.holders == 0 {
		_ = l.held.Close()
		l.held = nil
	}
}

// flock locks the directory. A waiting process holds the file .gate: otherwise a stream of writers, which share the
// lock, could block the drain forever.
func (l *dirLock) flock(ctx context.Context, how int) (*os.File, error) {
	gate, err := l.retry(ctx, func() (*os.File, error) { return tryFlock(l.openGate, syscall.LOCK_EX) })
	if err != nil {
		return nil, err
	}
	defer func() { _ = gate.Close() }()
	return l.retry(ctx, func() (*os.File, error) { return l.tryLock(how) })
}

var errBusy = errors.New("lock is held")

// retry calls try until the lock is free or ctx ends.
func (l *dirLock) retry(ctx context.Context, try func() (*os.File, error)) (*os.File, error) {
	tick := time.NewTicker(lockPoll)
	defer tick.Stop()
	for {
		file, err := try()
		if err == nil || !errors.Is(err, errBusy) {
			return file, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("lock %s: another process holds it: %w", l.dir, ctx.Err())
		case <-tick.C:
		}
	}
}

func (l *dirLock) openGate() (*os.File, error) {
	if err := makeDir(l.dir); err != nil {
		return nil, err
	}
	return os.OpenFile(filepath.Join(l.dir, ".gate"), os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
}

// tryLock locks the directory. If another process replaced the directory meanwhile, the lock excludes no process: the
// caller retries.
func (l *dirLock) tryLock(how int) (*os.File, error) {
	dir, err := tryFlock(func() (*os.File, error) { return os.Open(l.dir) }, how)
	if err == nil && !sameDir(dir, l.dir) {
		_ = dir.Close()
		return nil, errBusy
	}
	return dir, err
}

func tryFlock(open func() (*os.File, error), how int) (*os.File, error) {
	file, err := open()
	if err != nil {
		return nil, fmt.Errorf("open delete queue: %w", err)
	}
	err = syscall.Flock(int(file.Fd()), how|syscall.LOCK_NB)
	if err == nil {
		return file, nil
	}
	_ = file.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, syscall.EINTR) {
		return nil, errBusy
	}
	return nil, fmt.Errorf("lock delete queue: %w", err)
}

func sameDir(open *os.File, path string) bool {
	a, errA := open.Stat()
	b, errB := os.Stat(path)
	return errA == nil && errB == nil && os.SameFile(a, b)
}

// once returns a function that calls f only the first time.
func once(f func()) func() {
	done := false
	return func() {
		if !done {
			done = true
			f()
		}
	}
}
