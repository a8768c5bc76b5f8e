package eventlooptest

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/weftnet/weft/eventloop"
)

// Saver keeps saved values in memory.
type Saver struct {
	mu      sync.Mutex
	before  func(ctx context.Context, saved []eventloop.Saved) error
	buckets map[string]map[string]any
}

// Before sets a function to be called before a save. If it fails, the save fails.
func (s *Saver) Before(f func(ctx context.Context, saved []eventloop.Saved) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = f
}

// Save keeps the values, all or none.
func (s *Saver) Save(ctx context.Context, saved []eventloop.Saved) error {
	s.mu.Lock()
	before := s.before
	s.mu.Unlock()
	if before != nil {
		if err := before(ctx, saved); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.buckets == nil {
		s.buckets = make(map[string]map[string]any)
	}
	for _, v := range saved {
		if s.buckets[v.Bucket] == nil {
			s.buckets[v.Bucket] = make(map[string]any)
		}
		if v.Value == nil {
			delete(s.buckets[v.Bucket], v.Key)
		} else {
			s.buckets[v.Bucket][v.Key] = v.Value
		}
	}
	return nil
}

// Bucket returns the values of a bucket.
func (s *Saver) Bucket(name string) map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.buckets[name])
}

// Records returns the saved records, oldest first.
func (s *Saver) Records() []eventloop.Record {
	saved := s.Bucket(eventloop.RecordsBucket)
	records := make([]eventloop.Record, 0, len(saved))
	for _, key := range slices.Sorted(maps.Keys(saved)) {
		records = append(records, saved[key].(eventloop.Record))
	}
	return records
}
