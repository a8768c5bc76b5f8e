package deletequeue

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

// MaxEntries bounds the queue: a drained node of 250 pods with many repeated sandboxes stays far below it.
const MaxEntries = 4096

// ErrFull refuses an entry because MaxEntries are there.
var ErrFull = errors.New("delete queue is full")

// Queue is the queue in one directory. Its methods may be called by several goroutines.
type Queue struct {
	dir string

	drain sync.Mutex // one drain at a time

	mu      sync.Mutex
	held    *os.File                 // the directory under its exclusive lock
	holders int                      // of held
	busy    map[string]chan struct{} // files whose entry is being done; closed at its end
}

// Open returns the queue in dir, and makes the directory (0700) where it is missing.
func Open(dir string) (*Queue, error) {
	if err := makeDir(dir); err != nil {
		return nil, err
	}
	return &Queue{dir: dir, busy: make(map[string]chan struct{})}, nil
}

// Add makes e durable, in place of an older one of the same key.
func (q *Queue) Add(ctx context.Context, e Entry) error {
	return q.AddUnless(ctx, e, func() bool { return false })
}

// AddUnless asks served, under the lock, whether the DEL has been done after all,
// and makes e durable only if it has not.
func (q *Queue) AddUnless(ctx context.Context, e Entry, served func() bool) error {
	content, err := e.encode()
	if err != nil {
		return err
	}
	unlock, err := q.lock(ctx, syscall.LOCK_SH)
	if err != nil {
		return err
	}
	defer unlock()
	if served() {
		return nil
	}
	name := e.Key().fileName()
	names, err := q.names()
	if err != nil {
		return err
	}
	if _, err := os.Lstat(filepath.Join(q.dir, name)); err != nil && len(names) >= MaxEntries {
		return fmt.Errorf("%w: %d entries in %s", ErrFull, len(names), q.dir)
	}
	return writeDurably(q.dir, name, content)
}

// Remove voids the entry of key, if there is one: the attachment is added again.
// If that entry is being done at this moment, Remove waits for its end, so that
// what follows is not deleted by it.
func (q *Queue) Remove(ctx context.Context, key Key) error {
	name := key.fileName()
	for {
		q.mu.Lock()
		done, busy := q.busy[name]
		if !busy {
			defer q.mu.Unlock()
			return removeFile(filepath.Join(q.dir, name))
		}
		q.mu.Unlock()
		select {
		case <-done:
		case <-ctx.Done():
			return fmt.Errorf("wait for the queued delete of %s: %w", key, ctx.Err())
		}
	}
}

// Len counts the entries.
func (q *Queue) Len() (int, error) {
	names, err := q.names()
	return len(names), err
}

// names lists the files that are entries.
func (q *Queue) names() ([]string, error) {
	files, err := os.ReadDir(q.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list delete queue: %w", err)
	}
	var names []string
	for _, f := range files {
		if isEntry(f.Name()) {
			names = append(names, f.Name())
		}
	}
	return names, nil
}

func isEntry(name string) bool {
	return strings.HasSuffix(name, ".json") && !strings.HasPrefix(name, ".")
}

func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove entry: %w", err)
	}
	return nil
}
