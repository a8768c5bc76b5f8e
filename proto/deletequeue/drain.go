package deletequeue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"syscall"
)

// maxAttempts is after how many failures an entry is given up.
const maxAttempts = 10

// ErrNotNow ends a drain, when what Drain calls wraps it: it is not the entry's fault, and no attempt is counted.
var ErrNotNow = errors.New("deletes cannot be done now")

// Drain calls do for each entry, oldest first, under the exclusive lock, and
// removes those that succeed. One that fails stays, until it has failed ten times:
// then, as what is no entry at once, it goes to the directory poison with the
// reason beside it. failed counts both. err names what was poisoned, what was
// wrong with the directory, or why the drain ended early; failures of do alone are
// not in it.
func (q *Queue) Drain(ctx context.Context, do func(Entry) error) (done, failed int, err error) {
	q.drain.Lock()
	defer q.drain.Unlock()
	unlock, err := q.lock(ctx, syscall.LOCK_EX)
	if err != nil {
		return 0, 0, err
	}
	defer unlock()
	if err := removeTemps(q.dir); err != nil {
		return 0, 0, err
	}
	entries, failed, err := q.load()
	errs := []error{err}
	for _, e := range entries {
		if ctx.Err() != nil {
			errs = append(errs, fmt.Errorf("drain delete queue: %w", ctx.Err()))
			break
		}
		outcome, err := q.doOne(ctx, e, do)
		errs = append(errs, err)
		switch outcome {
		case succeeded:
			done++
		case failedOnce:
			failed++
		case refused:
			return done, failed, errors.Join(errs...)
		}
	}
	return done, failed, errors.Join(errs...)
}

// outcome is what became of one entry in one drain.
type outcome int

const (
	voided outcome = iota // removed since it was read
	succeeded
	failedOnce
	refused // with ErrNotNow
)

// load reads the entries, oldest first, and moves invalid files away.
func (q *Queue) load() (entries []Entry, failed int, err error) {
	names, err := q.names()
	if err != nil {
		return nil, 0, err
	}
	var errs []error
	for _, name := range names {
		e, err := readEntry(filepath.Join(q.dir, name))
		switch {
		case err == nil:
			entries = append(entries, e)
		case errors.Is(err, fs.ErrNotExist): // voided
		case isIO(err):
			failed++
			errs = append(errs, err)
		default:
			failed++
			errs = append(errs, q.poison(name, err))
		}
	}
	slices.SortStableFunc(entries, func(a, b Entry) int {
		return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Key().String(), b.Key().String()))
	})
	return entries, failed, errors.Join(errs...)
}

// isIO is true where the file system failed, which says nothing about the entry. A symbolic link (ELOOP) is no entry.
func isIO(err error) bool {
	_, ok := errors.AsType[*fs.PathError](err)
	return ok && !errors.Is(err, syscall.ELOOP)
}

// doOne does one entry, if it has not been voided since it was read.
func (q *Queue) doOne(ctx context.Context, e Entry, do func(Entry) error) (outcome, error) {
	name := e.Key().fileName()
	if !q.begin(name) {
		return voided, nil
	}
	defer q.end(name)
	switch err := do(e); {
	case err == nil:
		return succeeded, removeFile(filepath.Join(q.dir, name))
	case errors.Is(err, ErrNotNow):
		return refused, fmt.Errorf("drain delete queue: %w", err)
	case ctx.Err() != nil:
		return failedOnce, nil // the agent stops: the next one tries again
	default:
		return failedOnce, q.countAttempt(e, err)
	}
}

func (q *Queue) countAttempt(e Entry, failure error) error {
	name := e.Key().fileName()
	e.Attempts++
	if e.Attempts >= maxAttempts {
		return q.poison(name, fmt.Errorf("failed %d times, at last: %w", e.Attempts, failure))
	}
	content, err := e.encode()
	if err != nil {
		return err
	}
	return writeDurably(q.dir, name, content)
}

// begin marks the entry as being done; it is false if the entry has gone.
func (q *Queue) begin(name string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !exists(filepath.Join(q.dir, name)) {
		return false
	}
	q.busy[name] = make(chan struct{})
	return true
}

func (q *Queue) end(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	close(q.busy[name])
	delete(q.busy, name)
}
