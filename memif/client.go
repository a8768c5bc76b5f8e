package memif

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// firstPause and longestPause bound how long a client waits before it tries again.
	firstPause   = 50 * time.Millisecond
	longestPause = 2 * time.Second
	// defaultSpin is about what falling asleep and waking up costs.
	defaultSpin = 20 * time.Microsecond
)

// Client is a program's interface that connects again, or with ClientConfig.Listen is connected to again, whenever the
// connection ends. Its methods may be called from any goroutine; packets of concurrent calls are not ordered among each
// other.
type Client struct {
	config  ClientConfig
	events  ClientEvents
	cancel  context.CancelFunc
	closing <-chan struct{}
	done    chan struct{}

	reading chan struct{} // held by the receiver, also while it sleeps
	bell    *clientNotifier

	mu   sync.Mutex // guards what follows, and the queues' use
	conn *Conn      // nil while disconnected
	turn int        // the queue to receive from next
}

// ClientEvents are called by the client's own goroutine and must not block nor close the client. All are optional.
type ClientEvents struct {
	Connected    func(Info)
	Disconnected func(error)
	// Failed reports a failed attempt to connect. The client retries.
	Failed func(error)
}

// Dial creates a client and waits until it is connected for the first time; it retries until ctx ends. After that the
// client reconnects until Close.
func Dial(ctx context.Context, c ClientConfig, events ClientEvents) (*Client, error) {
	if err := c.complete(); err != nil {
		return nil, wrapClient(&c, err)
	}
	bell, err := newClientNotifier()
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

// Close ends the connection and the client. Waiting calls return ErrClosed.
func (c *Client) Close() error {
	c.cancel()
	<-c.done
	return nil
}

// Info returns the negotiated parameters, false without a connection.
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
	next := func(ctx context.Context) (*Conn, error) { return Connect(ctx, c.config) }
	if c.config.Listen {
		a := &clientAcceptor{config: c.config}
		defer a.close()
		next = a.next
	}
	pause := firstPause
	for {
		conn, err := next(ctx)
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

// live serves one connection until its end.
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

// swap replaces the connection, releases the previous one and wakes sleeping receivers.
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

// ErrNotConnected means that the client is not connected now.
var ErrNotConnected = errors.New("memif not connected")

// fullPause is how long a writer waits for room: the protocol has no interrupt for it.
const fullPause = 50 * time.Microsecond

// ReadPacket waits for a packet, copies it into b and returns its length. While there is no connection it waits for
// one. A packet longer than b is dropped; MaxPacket is always enough.
func (c *Client) ReadPacket(ctx context.Context, b []byte) (int, error) {
	v := [1][]byte{b[:0:len(b)]}
	_, err := c.ReadBurst(ctx, v[:])
	return len(v[0]), err
}

// ReadBurst waits for packets, copies as many as wait and as v has slices, each up to its capacity, sets their lengths
// and returns how many they were, at least one. v is the caller's before and after.
func (c *Client) ReadBurst(ctx context.Context, v [][]byte) (int, error) {
	if len(v) == 0 {
		return 0, nil
	}
	select {
	case c.reading <- struct{}{}:
		defer func() { <-c.reading }()
	case <-c.done:
		return 0, c.wrap(ErrClosed)
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	for {
		if n := c.spin(v); n > 0 {
			return n, nil
		}
		n, err := c.sleep(ctx, v)
		if n > 0 || err != nil {
			return n, err
		}
	}
}

// spin polls for packets for ClientConfig.Spin.
func (c *Client) spin(v [][]byte) int {
	if n := c.take(v); n > 0 || c.config.Spin < 0 {
		return n
	}
	for start := time.Now(); time.Since(start) < c.config.Spin; {
		for range 16 {
			if n := c.take(v); n > 0 {
				return n
			}
		}
		runtime.Gosched()
	}
	return 0
}

// take receives from the next queue that has packets.
func (c *Client) take(v [][]byte) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == nil {
		return 0
	}
	for range c.conn.rx {
		q := c.conn.rx[c.turn%len(c.conn.rx)]
		c.turn++
		if n := q.Receive(v); n > 0 {
			return n
		}
	}
	return 0
}

// sleep waits for an interrupt of the server unless packets are waiting.
func (c *Client) sleep(ctx context.Context, v [][]byte) (int, error) {
	if c.arm(true) {
		c.arm(false)
		return c.take(v), nil
	}
	err := c.bell.wait(ctx)
	c.arm(false)
	if c.ended() {
		err = c.wrap(ErrClosed)
	}
	return 0, err
}

func (c *Client) ended() bool {
	select {
	case <-c.closing:
		return true
	default:
		return false
	}
}

// arm enables or disables interrupts and reports whether packets wait.
func (c *Client) arm(on bool) (waiting bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == nil {
		return false
	}
	for _, q := range c.conn.rx {
		if !on {
			q.Disarm()
			continue
		}
		waiting = q.Arm() || waiting
	}
	return waiting
}

// WritePacket sends one packet; it copies b. While the ring is full it waits until ctx ends; ErrNotConnected if there
// is no connection, io.ErrShortBuffer if b is empty or longer than the server takes.
func (c *Client) WritePacket(ctx context.Context, b []byte) error {
	if len(b) == 0 || len(b) > c.config.MaxPacket {
		return c.wrap(io.ErrShortBuffer)
	}
	v := [1][]byte{b}
	_, err := c.WriteBurst(ctx, v[:])
	return err
}

// WriteBurst sends packets in order and copies them; it returns how many it sent: fewer than all only with an error.
// Packets that are empty or too long are dropped.
func (c *Client) WriteBurst(ctx context.Context, v [][]byte) (int, error) {
	sent := 0
	for {
		n, err := c.put(v[sent:])
		sent += n
		if err != nil || sent == len(v) {
			return sent, err
		}
		select {
		case <-ctx.Done():
			return sent, ctx.Err()
		case <-c.closing:
			return sent, c.wrap(ErrClosed)
		case <-time.After(fullPause):
		}
	}
}

func (c *Client) put(v [][]byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == nil {
		return 0, c.wrap(ErrNotConnected)
	}
	return c.conn.tx[0].Send(v), nil
}

func (c *Client) wrap(err error) error { return wrapClient(&c.config, err) }

// clientNotifier wakes receivers: for packets of the server, and when the connection changes.
type clientNotifier struct {
	waiter *Waiter
	own    int
}

func newClientNotifier() (*clientNotifier, error) {
	waiter, err := NewWaiter()
	if err != nil {
		return nil, err
	}
	own, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		_ = waiter.Close()
		return nil, fmt.Errorf("make eventfd: %w", err)
	}
	if err := waiter.add(own); err != nil {
		_ = unix.Close(own)
		_ = waiter.Close()
		return nil, err
	}
	return &clientNotifier{waiter: waiter, own: own}, nil
}

func (b *clientNotifier) wake() { notifyByWrite(b.own) }

func (b *clientNotifier) wait(ctx context.Context) error { return b.waiter.Wait(ctx) }

func (b *clientNotifier) listen(c *Conn) error {
	for _, q := range c.rx {
		if err := b.waiter.Add(q); err != nil {
			return err
		}
	}
	return nil
}

func (b *clientNotifier) forget(c *Conn) {
	for _, q := range c.rx {
		b.waiter.Remove(q)
	}
}

// close wakes the sleeping receiver and waits for it. It keeps reading locked.
func (b *clientNotifier) close(reading chan struct{}) {
	b.wake()
	reading <- struct{}{}
	_ = b.waiter.Close()
	_ = unix.Close(b.own)
}
