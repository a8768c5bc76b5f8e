package kvscheduler

import (
	"cmp"
	"encoding/json"
	"iter"
	"math"
	"slices"
	"sync"
)

// ring keeps the last records, bounded by count and by bytes.
type ring struct {
	mu      sync.Mutex
	records []*Record // oldest first
	sizes   []int
	bytes   int

	maxRecords, maxBytes int
	onDone               func(*Record)
	undelivered          []*Record
	delivering           bool
	delivered            sync.WaitGroup
}

func (l *ring) append(rec *Record, size int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keepLocked(rec, size)
	if l.onDone == nil {
		return
	}
	if l.undelivered = append(l.undelivered, rec); !l.delivering {
		l.delivering = true
		l.delivered.Go(l.deliver)
	}
}

// keepLocked adds a record and drops the oldest ones over the bounds.
func (l *ring) keepLocked(rec *Record, size int) {
	l.records = append(l.records, rec)
	l.sizes = append(l.sizes, size)
	l.bytes += size
	drop := 0
	for drop < len(l.records)-1 && (len(l.records)-drop > l.maxRecords || l.bytes > l.maxBytes) {
		l.bytes -= l.sizes[drop]
		l.records[drop] = nil
		drop++
	}
	l.records, l.sizes = l.records[drop:], l.sizes[drop:]
}

// deliver calls the hook for each record in order, so that a slow hook delays nobody.
func (l *ring) deliver() {
	for {
		l.mu.Lock()
		if len(l.undelivered) == 0 {
			l.delivering = false
			l.mu.Unlock()
			return
		}
		rec := l.undelivered[0]
		l.undelivered = l.undelivered[1:]
		l.mu.Unlock()
		l.onDone(rec)
	}
}

func (l *ring) since(seq uint64) []*Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, r := range l.records {
		if r.Seq > seq {
			return append([]*Record(nil), l.records[i:]...)
		}
	}
	return nil
}

// Restore puts records of an earlier run into the log before Run: numbers continue after the highest of them. It
// skips damaged records: those whose number is zero, used twice, or above 2^63. Values in records are as JSON decodes them.
func (s *Scheduler) Restore(records []*Record) {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	for _, r := range slices.SortedStableFunc(slices.Values(records), func(a, b *Record) int { return cmp.Compare(a.Seq, b.Seq) }) {
		raw, err := json.Marshal(r)
		if err != nil || r.Seq <= s.lastSeq || r.Seq > math.MaxInt64 {
			continue
		}
		s.log.keepLocked(r, len(raw))
		s.lastSeq = r.Seq
	}
}

// Log yields the records after since, oldest first.
func (s *Scheduler) Log(since uint64) iter.Seq[*Record] {
	return func(yield func(*Record) bool) {
		for _, r := range s.log.since(since) {
			if !yield(r) {
				return
			}
		}
	}
}
