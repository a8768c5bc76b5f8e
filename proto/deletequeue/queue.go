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
	"sync"
	"syscall"
)

// MaxEntries limits the queue. The DELs of a node with 250 pods and many repeated sandboxes are far fewer.
const MaxEntries = 4096

// ErrFull means that the queue has MaxEntries.
var ErrFull = errors.New("delete queue is full")

// Queue is the queue in one directory. Its methods are safe for concurrent use.
type Queue struct {
	dir      directory
	lock     dirLock
	draining sync.Mutex // one drain at a time
	deletes  deletes
}

// Open returns the queue in dir. It creates a missing directory with mode 0700.
func Open(dir string) (*Queue, error) {
	if err := makeDir(dir); err != nil {
		return nil, err
	}
	d := directory(dir)
	return &Queue{
		dir:     d,
		lock:    dirLock{dir: dir},
		deletes: deletes{dir: d, busy: make(map[string]chan struct{})},
	}, nil
}

// Lock takes the queue's exclusive lock until unlock is called; unlock may be called more than once. The methods of
// this Queue use the same lock. Other processes, and other Queues of this process, wait.
func (q *Queue) Lock(ctx context.Context) (unlock func(), err error) {
	return q.lock.take(ctx, syscall.LOCK_EX)
}

// AddUnless calls served under the lock: served retries the DEL. If it returns false, AddUnless stores e durably and
// replaces an entry with the same key.
func (q *Queue) AddUnless(ctx context.Context, e Entry, served func() bool) error {
	content, err := e.encode()
	if err != nil {
		return err
	}
	unlock, err := q.lock.take(ctx, syscall.LOCK_SH)
	if err != nil {
		return err
	}
	defer unlock()
	if served() {
		return nil
	}
	name := e.Key().fileName()
	names, err := q.dir.names()
	if err != nil {
		return err
	}
	if !exists(q.dir.path(name)) && len(names) >= MaxEntries {
		return fmt.Errorf("%w: %d entries in %s", ErrFull, len(names), q.dir)
	}
	return q.dir.write(name, content)
}

// Remove removes the entry of key, if any: the attachment is added again. If Drain is processing this entry, Remove
// waits until that delete ends, which otherwise could delete the new attachment.
func (q *Queue) Remove(ctx context.Context, key Key) error {
	for {
		done, err := q.deletes.remove(key.fileName())
		if done == nil {
			return err
		}
		select {
		case <-done:
		case <-ctx.Done():
			return fmt.Errorf("wait for the queued delete of %s: %w", key, ctx.Err())
		}
	}
}

// Len returns the number of entries.
func (q *Queue) Len() (int, error) {
	names, err := q.dir.names()
	return len(names), err
}
