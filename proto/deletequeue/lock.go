package deletequeue

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// lockPoll is the interval of attempts to lock: writers hold the lock for a few milliseconds.
const lockPoll = 5 * time.Millisecond

// Lock takes the queue's exclusive lock until unlock is called; unlock may be called more than once. The methods of
// this Queue use the same lock. Other processes, and other Queues of this process, wait.
func (q *Queue) Lock(ctx context.Context) (unlock func(), err error) {
	return q.lock(ctx, syscall.LOCK_EX)
}

// lock takes the directory's flock. If this Queue already holds it exclusively, lock only counts another user.
func (q *Queue) lock(ctx context.Context, how int) (func(), error) {
	if q.joinHeld() {
		return once(q.leaveHeld), nil
	}
	dir, err := q.flock(ctx, how)
	if err != nil {
		return nil, err
	}
	if how == syscall.LOCK_SH {
		return once(func() { _ = dir.Close() }), nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.held = dir
	q.holders = 1
	return once(q.leaveHeld), nil
}

func (q *Queue) joinHeld() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.held != nil {
		q.holders++
	}
	return q.held != nil
}

// leaveHeld releases the lock after its last user: closing the only descriptor releases the flock.
func (q *Queue) leaveHeld() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.holders--; q.holders == 0 {
		_ = q.held.Close()
		q.held = nil
	}
}

// flock locks the directory. A waiting process holds the file .gate: otherwise a stream of writers, which share the
// lock, could block the drain forever.
func (q *Queue) flock(ctx context.Context, how int) (*os.File, error) {
	gate, err := q.retry(ctx, func() (*os.File, error) { return tryFlock(q.openGate, syscall.LOCK_EX) })
	if err != nil {
		return nil, err
	}
	defer func() { _ = gate.Close() }()
	return q.retry(ctx, func() (*os.File, error) { return q.tryLock(how) })
}

var errBusy = errors.New("lock is held")

// retry calls try until the lock is free or ctx ends.
func (q *Queue) retry(ctx context.Context, try func() (*os.File, error)) (*os.File, error) {
	tick := time.NewTicker(lockPoll)
	defer tick.Stop()
	for {
		file, err := try()
		if err == nil || !errors.Is(err, errBusy) {
			return file, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("lock %s: another process holds it: %w", q.dir, ctx.Err())
		case <-tick.C:
		}
	}
}

func (q *Queue) openGate() (*os.File, error) {
	if err := makeDir(q.dir); err != nil {
		return nil, err
	}
	return os.OpenFile(filepath.Join(q.dir, ".gate"), os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
}

// tryLock locks the directory. If another process replaced the directory meanwhile, the lock excludes no process: the
// caller retries.
func (q *Queue) tryLock(how int) (*os.File, error) {
	dir, err := tryFlock(func() (*os.File, error) { return os.Open(q.dir) }, how)
	if err == nil && !sameDir(dir, q.dir) {
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
