package agent

import (
	"encoding/json"
	"fmt"
	"iter"

	"go.etcd.io/bbolt"

	"github.com/weftnet/weft/kvscheduler"
)

// journal keeps what was last applied. A restart reads the machine back anyway.
type journal struct {
	db *bbolt.DB
	rider[kvscheduler.JournalEntry]
}

func newJournal(db *bbolt.DB, buffered chan<- struct{}) *journal {
	return &journal{db: db, rider: rider[kvscheduler.JournalEntry]{store: storeApplied, buffered: buffered}}
}

// Append takes entries in.
func (j *journal) Append(entries []kvscheduler.JournalEntry) error {
	j.add(entries...)
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

func storeApplied(tx *bbolt.Tx, e kvscheduler.JournalEntry) error {
	b := tx.Bucket([]byte(appliedBucket))
	if e.V == nil {
		return b.Delete([]byte(e.Ref))
	}
	raw, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("applied value %s: %w", e.Ref, err)
	}
	return b.Put([]byte(e.Ref), raw)
}
