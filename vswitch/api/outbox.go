package api

import (
	"errors"
	"net"
	"sync"
	"time"
)

// maxQueued bounds what waits for one client. A dump's writer then waits with it; events,
// whose writer waits for nobody, cost the client its connection.
const maxQueued = 1 << 20

var errSlowReader = errors.New("client reads too slowly")

// outbox carries messages to one connection in order, with a goroutine of its own,
// so that neither the model nor another client ever waits for this one.
//
//	put --> queued --flush, or much of it--> run writes --> connection
type outbox struct {
	conn    net.Conn
	timeout time.Duration // for one write

	mu      sync.Mutex
	changed *sync.Cond
	queued  []byte
	due     bool  // queued is to be written
	err     error // set once: nothing more is taken
}

func newOutbox(conn net.Conn, timeout time.Duration) *outbox {
	o := &outbox{conn: conn, timeout: timeout}
	o.changed = sync.NewCond(&o.mu)
	return o
}

// put queues one message, and waits while too much is queued already.
func (o *outbox) put(data []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.err == nil && len(o.queued) > maxQueued {
		o.due = true
		o.changed.Broadcast()
		o.changed.Wait()
	}
	if o.err != nil {
		return o.err
	}
	o.queued = appendFrame(o.queued, data)
	return nil
}

// post queues one message and sends it soon; it never waits.
func (o *outbox) post(data []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil && len(o.queued) > maxQueued {
		o.err = errSlowReader
	}
	if o.err == nil {
		o.queued = appendFrame(o.queued, data)
		o.due = true
	}
	o.changed.Broadcast()
	return o.err
}

// flush sends what is queued.
func (o *outbox) flush() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.due = true
	o.changed.Broadcast()
}

// close ends run once what is due has been written.
func (o *outbox) close(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		o.err = err
	}
	o.changed.Broadcast()
}

// run writes until the outbox is closed or a write fails; its error, never nil, says which.
func (o *outbox) run() error {
	var spare []byte
	for {
		batch, err := o.take(spare)
		if len(batch) > 0 {
			if werr := o.write(batch); werr != nil {
				o.close(werr)
				return werr
			}
		}
		if err != nil {
			return err
		}
		spare = batch[:0]
	}
}

// take waits for something due and takes all that is queued, leaving spare in its place.
func (o *outbox) take(spare []byte) ([]byte, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.err == nil && (!o.due || len(o.queued) == 0) {
		o.changed.Wait()
	}
	batch := o.queued
	if !o.due {
		batch = nil
	}
	o.queued, o.due = spare, false
	o.changed.Broadcast()
	return batch, o.err
}

func (o *outbox) write(batch []byte) error {
	if err := o.conn.SetWriteDeadline(time.Now().Add(o.timeout)); err != nil {
		return err
	}
	_, err := o.conn.Write(batch)
	if ne := net.Error(nil); errors.As(err, &ne) && ne.Timeout() {
		return errSlowReader
	}
	return err
}
