package agent

import (
	"sync"

	"go.etcd.io/bbolt"
)

// rider holds what may become durable a little later: it rides along with the next durable step, so that an event costs
// one write to disk and not several. If there is none soon, [State.flushSoon] writes it.
type rider[E any] struct {
	store    func(tx *bbolt.Tx, e E) error
	buffered chan<- struct{} // gets a token when an entry is added

	mu      sync.Mutex
	pending []E
}

// add lets entries wait for the next durable step, or for the end of the file.
func (r *rider[E]) add(entries ...E) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pending = append(r.pending, entries...)
	select {
	case r.buffered <- struct{}{}:
	default: // the token is there already
	}
}

func (r *rider[E]) isEmpty() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.pending) == 0
}

// write stores what is pending, as part of tx. It stays pending until settle says that tx was committed.
func (r *rider[E]) write(tx *bbolt.Tx) (n int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.pending {
		if err := r.store(tx, e); err != nil {
			return 0, err
		}
	}
	return len(r.pending), nil
}

// settle forgets the first n pending entries: they are durable.
func (r *rider[E]) settle(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pending = r.pending[n:]
}
