package memif

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// firstPause and longestPause bound how long a client waits before it tries again.
	firstPause   = 50 * time.Millisecond
	longestPause = 2 * time.Second
	// defaultSpin is about what falling asleep and waking up costs.
	defaultSpin = 20 * time.Microsecond
)

// Client is a client's interface that connects again whenever the connection ends. Its methods may be called from any
// goroutine; packets of concurrent calls are not ordered among each other.
type Client struct {
	config  ClientConfig
	events  ClientEvents
	cancel  context.CancelFunc
	closing <-chan struct{}
	done    chan struct{}

	reading chan struct{} // held by who receives, also while asleep
	bell    *clientBell

	mu   sync.Mutex // guards what follows, and the queues' use
	conn *Conn      // nil while there is none
	turn int        // the queue to receive from next
}

// ClientEvents are called by the client's own goroutine and must not block nor close the client. All are optional.
type ClientEvents struct {
	Connected    func(Info)
	Disconnected func(error)
	// Failed tells that an attempt to connect failed; the next follows.
	Failed func(error)
}

// Dial makes a client and waits until it is connected for the first time; it tries again until ctx ends. From then on the
// client lives until Close.
func Dial(ctx context.Context, c ClientConfig, events ClientEvents) (*Client, error) {
	if err := c.complete(); err != nil {
		return nil, wrapClient(&c, err)
	}
	bell, err := newClientBell()
	if err != nil {
		return nil, wrapClient(&c, err)
	}
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	client := &Client{
		config: c, events: events, bell: bell,
		cancel: cancel, closing: life.Done(), done: make(chan struct{}), reading: make(chan struct{}, 1),
	}
	first := make(chan struct{})
	var last error
	client.events.Connected = func(i Info) {
		client.events.Connected = events.Connected
		close(first)
		tell(events.Connected, i)
	}
	failed := func(err error) {
		last = err
		tell(events.Failed, err)
	}
	go client.run(life, failed)
	select {
	case <-first:
		return client, nil
	case <-ctx.Done():
		_ = client.Close()
		return nil, errors.Join(ctx.Err(), last)
	}
}

func wrapClient(c *ClientConfig, err error) error {
	return fmt.Errorf("memif %d on %s: %w", c.ID, c.Socket, err)
}

func tell[T any](f func(T), v T) {
	if f != nil {
		f(v)
	}
}

// Close ends the connection and the client. Who waits in it gets ErrClosed.
func (c *Client) Close() error {
	c.cancel()
	<-c.done
	return nil
}

// Info tells what was agreed upon with the server; false: there is no connection.
func (c *Client) Info() (Info, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == nil {
		return Info{}, false
	}
	return c.conn.Info(), true
}

// run keeps the client connected until ctx ends.
func (c *Client) run(ctx context.Context, failed func(error)) {
	defer close(c.done)
	defer c.bell.close(c.reading)
	pause := firstPause
	for {
		conn, err := Connect(ctx, c.config)
		switch {
		case err == nil:
			pause = firstPause
			c.live(ctx, conn)
		case ctx.Err() == nil:
			failed(err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
			pause = min(2*pause, longestPause)
		}
	}
}

// live is one connection's time.
func (c *Client) live(ctx context.Context, conn *Conn) {
	c.swap(conn)
	tell(c.events.Connected, conn.Info())
	select {
	case <-conn.Gone():
	case <-ctx.Done():
		conn.Close()
		<-conn.Gone()
	}
	c.swap(nil)
	tell(c.events.Disconnected, conn.Err())
}

// swap puts the connection into use; the one before is released, and who sleeps looks again.
func (c *Client) swap(next *Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if before := c.conn; before != nil {
		c.bell.forget(before)
		before.Release()
	}
	c.conn = next
	if next != nil && c.bell.listen(next) != nil {
		next.Close()
	}
	c.bell.wake()
}
