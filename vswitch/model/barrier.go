package model

import "sync"

// barrier is the lock under which the control plane changes its state, and the packet path that gets the changes. As
// VPP's barrier of the workers it makes a change visible as a whole.
type barrier struct {
	engine Engine

	mu sync.Mutex
}

// change begins a change. The returned function ends it and publishes it to the workers.
func (b *barrier) change() func() {
	b.mu.Lock()
	return func() {
		defer b.mu.Unlock()
		b.engine.Publish()
	}
}
