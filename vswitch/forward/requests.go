package forward

import (
	"sync/atomic"

	"github.com/weftnet/weft/vswitch/slow"
)

// requests are functions that other goroutines make a worker call between two vectors.
type requests struct {
	newest  atomic.Pointer[request]
	bell    *slow.Bell      // of the worker
	ended   chan struct{}   // closed when the worker has ended and serves no more requests
	stopped <-chan struct{} // closed when the engine has stopped
}

type request struct {
	do   func(*worker)
	done chan struct{}
	next *request
}

// post makes the worker call do and waits for that. It returns false if the worker has ended, or if the engine was
// stopped before the worker ran. Other goroutines of the engine may still run then, so the end of the engine alone is
// not sufficient.
func (r *requests) post(do func(*worker)) bool {
	q := &request{do: do, done: make(chan struct{})}
	for {
		q.next = r.newest.Load()
		if r.newest.CompareAndSwap(q.next, q) {
			break
		}
	}
	r.bell.Ring()
	select {
	case <-q.done:
		return true
	case <-r.ended:
		return false
	case <-r.stopped:
		return false
	}
}

func (r *requests) pending() bool { return r.newest.Load() != nil }

// serveRequests serves all requests, in any order. It refreshes first, so that a request sees the changes before it:
// its sender may close a port afterwards.
func (w *worker) serveRequests() {
	if !w.requests.pending() {
		return
	}
	r := w.requests.newest.Swap(nil)
	w.refresh()
	for ; r != nil; r = r.next {
		r.do(w)
		close(r.done)
	}
}
