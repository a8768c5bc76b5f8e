package statefile

import (
	"encoding/json"
	"fmt"
	"iter"
	"sync"

	"go.etcd.io/bbolt"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/kvscheduler"
)

// Buffer is a write-behind buffer: the next Save writes its entries too, so an event needs only one write to disk. [File.FlushSoon]
// writes them if no Save follows.
type Buffer[E any] struct {
	entries  func(e E) []eventloop.Saved
	buffered chan<- struct{} // receives a token when an entry is added

	mu      sync.Mutex
	pending []E
}

// Add buffers entries.
func (b *Buffer[E]) Add(entries ...E) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pending = append(b.pending, entries...)
	select {
	case b.buffered <- struct{}{}:
	default: // it has a token
	}
}

func (b *Buffer[E]) isEmpty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.pending) == 0
}

// write stores the pending entries in tx. They stay pending until settle is called after the commit of tx.
func (b *Buffer[E]) write(tx *bbolt.Tx) (n int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.pending {
		for _, v := range b.entries(e) {
			if err := put(tx, v); err != nil {
				return 0, err
			}
		}
	}
	return len(b.pending), nil
}

// settle drops the first n pending entries, which are durable now.
func (b *Buffer[E]) settle(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pending = b.pending[n:]
}

// buffer is a Buffer of any type.
type buffer interface {
	isEmpty() bool
	write(tx *bbolt.Tx) (n int, err error)
	settle(n int)
}

// NewBuffer adds a buffer to the file. The function entries returns what is saved for an element.
func NewBuffer[E any](f *File, entries func(e E) []eventloop.Saved) *Buffer[E] {
	b := &Buffer[E]{entries: entries, buffered: f.buffered}
	f.saving.Lock()
	defer f.saving.Unlock()
	f.buffers = append(f.buffers, b)
	return b
}

// keptTransactions is the number of the scheduler's records in the file. The record of an ADD has about 10 kB.
const keptTransactions = 200

// transactionEntries writes a record and deletes the oldest one. Sequence numbers have no gaps.
func transactionEntries(r *kvscheduler.Record) []eventloop.Saved {
	key := func(seq uint64) string { return fmt.Sprintf("%020d", seq) }
	entries := []eventloop.Saved{{Bucket: BucketTransactions, Key: key(r.Seq), Value: r}}
	if r.Seq > keptTransactions {
		entries = append(entries, eventloop.Saved{Bucket: BucketTransactions, Key: key(r.Seq - keptTransactions)})
	}
	return entries
}

// Journal stores the values that the scheduler applied last.
type Journal struct {
	db *bbolt.DB
	*Buffer[kvscheduler.JournalEntry]
}

// Append buffers entries.
func (j *Journal) Append(entries []kvscheduler.JournalEntry) error {
	j.Add(entries...)
	return nil
}

// Load yields the entries of the file.
func (j *Journal) Load() iter.Seq2[kvscheduler.JournalEntry, error] {
	return func(yield func(kvscheduler.JournalEntry, error) bool) {
		err := j.db.View(func(tx *bbolt.Tx) error {
			c := tx.Bucket([]byte(BucketApplied)).Cursor()
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

func journalEntries(e kvscheduler.JournalEntry) []eventloop.Saved {
	entry := eventloop.Saved{Bucket: BucketApplied, Key: e.Ref}
	if e.V != nil {
		entry.Value = e
	}
	return []eventloop.Saved{entry}
}
