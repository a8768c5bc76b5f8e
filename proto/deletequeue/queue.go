// Package deletequeue is a directory of CNI DELs that the plugin queues while the agent does not answer.
//
// Writers hold the directory's flock shared. The reader holds it exclusive while it drains the queue. A writer calls
// the agent again under its lock (AddUnless). An agent that starts drains the queue and opens its socket under one lock
// (Lock). Thus this drain sees every entry, or the agent has answered the writer and the entry is not written.
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

// MaxEntries limits the queue. The DELs of a node with 250 pods and many repeated sandboxes are far fewer.
const MaxEntries = 4096

// ErrFull means that the queue has MaxEntries.
var ErrFull = errors.New("delete queue is full")

// Queue is the queue in one directory. Its methods are safe for concurrent use.
type Queue struct {
	dir string

	drain sync.Mutex // one drain at a time

	mu      sync.Mutex
	held    *os.File                 // the directory under its exclusive lock
	holders int                      // number of users of held
	busy    map[string]chan struct{} // by file name: closed when the entry's delete ends
}

// Open returns the queue in dir. It creates a missing directory with mode 0700.
func Open(dir string) (*Queue, error) {
	if err := makeDir(dir); err != nil {
		return nil, err
	}
	return &Queue{dir: dir, busy: make(map[string]chan struct{})}, nil
}

// AddUnless calls served under the lock: served retries the DEL. If it returns false, AddUnless stores e durably and
// replaces an entry with the same key.
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

// Remove removes the entry of key, if any: the attachment is added again. If Drain is processing this entry, Remove
// waits until that delete ends, which otherwise could delete the new attachment.
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

// Len returns the number of entries.
func (q *Queue) Len() (int, error) {
	names, err := q.names()
	return len(names), err
}

// names returns the file names of the entries.
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
