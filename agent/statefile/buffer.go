package statefile

import (
	"fmt"
	"iter"
	"sync"

	"go.etcd.io/bbolt"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/kvscheduler"
)

// Buffer is a write-behind buffer: the next Save writes its entries too, so an event needs only one write to disk.
// [File.FlushSoon] writes them if no Save follows. The buffer has the last value of each key, so that it stays small
// while the file cannot be written.
type Buffer[E any] struct {
	entries  func(e E) []eventloop.Saved
	isInFile func(v eventloop.Saved) bool
	buffered chan<- struct{} // receives a token when an entry is added

	mu      sync.Mutex
	pending map[bufferKey]pending
	version uint64 // of the last entry
}

type bufferKey struct{ bucket, key string }

// pending is the last value of a key that is not durable yet.
type pending struct {
	eventloop.Saved
	version uint64
	writing bool // a write that has not ended has a value of the key
}

// Add buffers entries.
func (b *Buffer[E]) Add(entries ...E) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range entries {
		for _, v := range b.entries(e) {
			b.addLocked(v)
		}
	}
	select {
	case b.buffered <- struct{}{}:
	default: // it has a token
	}
}

// addLocked buffers a value. A key that the file never had needs no delete.
func (b *Buffer[E]) addLocked(v eventloop.Saved) {
	key := bufferKey{v.Bucket, v.Key}
	writing := b.pending[key].writing
	if v.Value == nil && !writing && !b.isInFile(v) {
		delete(b.pending, key)
		return
	}
	b.version++
	b.pending[key] = pending{Saved: v, version: b.version, writing: writing}
}

func (b *Buffer[E]) isEmpty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.pending) == 0
}

// write stores the pending entries in tx. They stay pending until settle is called at the end of tx.
func (b *Buffer[E]) write(tx *bbolt.Tx) (version uint64, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, p := range b.pending {
		p.writing = true
		b.pending[key] = p
		if err := put(tx, p.Saved); err != nil {
			return 0, err
		}
	}
	return b.version, nil
}

// settle ends a write. The entries up to version are durable now; 0: none.
func (b *Buffer[E]) settle(version uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, p := range b.pending {
		if p.version <= version {
			delete(b.pending, key)
			continue
		}
		p.writing = false
		b.pending[key] = p
	}
}

// buffer is a Buffer of any type.
type buffer interface {
	isEmpty() bool
	write(tx *bbolt.Tx) (version uint64, err error)
	settle(version uint64)
}

// NewBuffer adds a buffer to the file. The function entries returns the saved entries of an element.
func NewBuffer[E any](f *File, entries func(e E) []eventloop.Saved) *Buffer[E] {
	b := &Buffer[E]{entries: entries, isInFile: f.has, buffered: f.buffered, pending: make(map[bufferKey]pending)}
	f.slot <- struct{}{}
	defer func() { <-f.slot }()
	f.buffers = append(f.buffers, b)
	return b
}

// has reports whether the file has a key. If it cannot be read, it may have it.
func (f *File) has(v eventloop.Saved) bool {
	there := true
	err := f.db.View(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(v.Bucket))
		there = b == nil || b.Get([]byte(v.Key)) != nil
		return nil
	})
	return there || err != nil
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
				err := decode(raw, &e)
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
