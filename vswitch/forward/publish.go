package forward

import (
	"sync/atomic"
	"time"
)

// published has the workers and the state that they read.
type published struct {
	workers []*worker
	live    atomic.Pointer[snapshot]
	ports   atomic.Pointer[portTable]
	start   time.Time // the clock of sessions begins
}

// synchronise returns when no worker uses a removed object any more, and all workers see the added ones.
func (p *published) synchronise() {
	for _, w := range p.workers {
		w.requests.post(func(*worker) {})
	}
}

// draft is the next snapshot, which control edits.
type draft struct {
	*published
	next *snapshot // nil: no change since Publish
}

// Publish makes control's changes visible to the workers by storing one pointer.
func (d *draft) Publish() {
	if d.next != nil {
		d.live.Store(d.next)
		d.next = nil
	}
}

// edit returns the draft of the next snapshot, a clone of the live one.
func (d *draft) edit() *snapshot {
	if d.next == nil {
		d.next = d.live.Load().clone()
	}
	return d.next
}
