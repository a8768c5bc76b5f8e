package deletequeue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"syscall"
)

// maxAttempts is the number of failures after which an entry moves to the directory poison.
const maxAttempts = 10

// ErrNotNow ends a drain if the function that Drain calls returns it. The entry's attempts do not increase.
var ErrNotNow = errors.New("deletes are not possible now")

// Drain calls do for each entry, oldest first, under the exclusive lock, and removes the entries that succeed. An entry
// that fails stays for the next drain. Entries that failed ten times and invalid files move to the directory poison,
// with the reason in a file beside. failed is the number of failed entries and invalid files. err has the moved files,
// errors of the directory, and the reason why the drain ended early, but not the errors of do.
func (q *Queue) Drain(ctx context.Context, do func(Entry) error) (done, failed int, err error) {
	q.draining.Lock()
	defer q.draining.Unlock()
	unlock, err := q.lock.take(ctx, syscall.LOCK_EX)
	if err != nil {
		return 0, 0, err
	}
	defer unlock()
	if err := q.dir.removeTemps(); err != nil {
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
		case postponed:
			return done, failed, errors.Join(errs...)
		}
	}
	return done, failed, errors.Join(errs...)
}

// outcome is the result of one entry in one drain.
type outcome int

const (
	removed outcome = iota // by Remove, after it was read
	succeeded
	failedOnce
	postponed // by ErrNotNow
)

// load reads the entries, oldest first, and moves invalid files to the directory poison.
func (q *Queue) load() (entries []Entry, failed int, err error) {
	names, err := q.dir.names()
	if err != nil {
		return nil, 0, err
	}
	var errs []error
	for _, name := range names {
		e, err := readEntry(q.dir.path(name))
		switch {
		case err == nil:
			entries = append(entries, e)
		case errors.Is(err, fs.ErrNotExist): // removed
		case isIO(err):
			failed++
			errs = append(errs, err)
		default:
			failed++
			errs = append(errs, q.dir.poison(name, err))
		}
	}
	slices.SortStableFunc(entries, func(a, b Entry) int {
		return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Key().String(), b.Key().String()))
	})
	return entries, failed, errors.Join(errs...)
}

// isIO reports an error of the file system. The entry may be valid, except for a symbolic link (ELOOP).
func isIO(err error) bool {
	_, ok := errors.AsType[*fs.PathError](err)
	return ok && !errors.Is(err, syscall.ELOOP)
}

// doOne calls do for one entry unless Remove removed it after load.
func (q *Queue) doOne(ctx context.Context, e Entry, do func(Entry) error) (outcome, error) {
	name := e.Key().fileName()
	if !q.deletes.begin(name) {
		return removed, nil
	}
	defer q.deletes.end(name)
	switch err := do(e); {
	case err == nil:
		return succeeded, q.dir.remove(name)
	case errors.Is(err, ErrNotNow):
		return postponed, fmt.Errorf("drain delete queue: %w", err)
	case ctx.Err() != nil:
		return failedOnce, nil // the agent stops; the next agent retries
	default:
		return failedOnce, q.countAttempt(e, err)
	}
}

func (q *Queue) countAttempt(e Entry, failure error) error {
	name := e.Key().fileName()
	e.Attempts++
	if e.Attempts >= maxAttempts {
		return q.dir.poison(name, fmt.Errorf("failed %d times, last error: %w", e.Attempts, failure))
	}
	content, err := e.encode()
	if err != nil {
		return err
	}
	return q.dir.write(name, content)
}
