package forward

// letter asks a worker to do something between two vectors.
type letter struct {
	do   func(*worker)
	done chan struct{}
	next *letter
}

// post hands a letter to the worker and waits until it is done; false: the worker has ended, or the engine was stopped
// before it ran. The others of the engine may still be at work then, so the engine's own end is not what counts.
func (w *worker) post(do func(*worker)) bool {
	l := &letter{do: do, done: make(chan struct{})}
	for {
		l.next = w.mail.Load()
		if w.mail.CompareAndSwap(l.next, l) {
			break
		}
	}
	w.bell.Ring()
	select {
	case <-l.done:
		return true
	case <-w.ended:
		return false
	case <-w.engine.stopped:
		return false
	}
}

// readMail does all letters; their order is of no matter, as everybody waits for his own. What was changed before one was
// written is seen before it is done: who is answered may close a port.
func (w *worker) readMail() {
	if w.mail.Load() == nil {
		return
	}
	l := w.mail.Swap(nil)
	w.refresh()
	for ; l != nil; l = l.next {
		l.do(w)
		close(l.done)
	}
}

// settle returns when no worker uses what was taken away before, and all see what was added.
func (e *Engine) settle() {
	for _, w := range e.workers {
		w.post(func(*worker) {})
	}
}
