package agent

import (
	"encoding/json"
	"fmt"
	"iter"
	"sync"

	"go.etcd.io/bbolt"

	"github.com/weftnet/weft/kvscheduler"
)

// journal keeps what was last applied. Entries ride along with the next durable step, so that an event costs one
// write to disk, not two; losing the last of them is harmless, since a restart reads the machine back anyway.
type journal struct {
	db *bbolt.DB

	mu      sync.Mutex
	pending []kvscheduler.JournalEntry
}

// Append takes entries in; they are durable with the next durable step, or when the state file is closed.
func (j *journal) Append(entries []kvscheduler.JournalEntry) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.pending = append(j.pending, entries...)
	return nil
}

// Load yields what was applied when the file was last written.
func (j *journal) Load() iter.Seq2[kvscheduler.JournalEntry, error] {
	return func(yield func(kvscheduler.JournalEntry, error) bool) {
		err := j.db.View(func(tx *bbolt.Tx) error {
			c := tx.Bucket([]byte(appliedBucket)).Cursor()
			for k, raw := c.First(); k != nil; k, raw = c.Next() {
				var e kvscheduler.JournalEntry
				err := json.Unmarshal(raw, &e)
				if err != nil {
					err = fmt.Errorf("applied value %s: %w", k, err)
				}
				if !yield(e, err) {
					return nil
				}
			}
			return nil
		})
		if err != nil {
			yield(kvscheduler.JournalEntry{}, fmt.Errorf("read applied values: %w", err))
		}
	}
}

// write stores what is pending, as part of tx. It stays pending until settle says that tx was committed.
func (j *journal) write(tx *bbolt.Tx) (n int, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	b := tx.Bucket([]byte(appliedBucket))
	for _, e := range j.pending {
		if err := writeEntry(b, e); err != nil {
			return 0, fmt.Errorf("applied value %s: %w", e.Ref, err)
		}
	}
	return len(j.pending), nil
}

func writeEntry(b *bbolt.Bucket, e kvscheduler.JournalEntry) error {
	if e.V == nil {
		return b.Delete([]byte(e.Ref))
	}
	raw, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return b.Put([]byte(e.Ref), raw)
}

// settle forgets the first n pending entries: they are durable.
func (j *journal) settle(n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.pending = j.pending[n:]
}
