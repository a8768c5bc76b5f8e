package memif

import (
	"context"
	"errors"
	"io"
	"runtime"
	"time"
)

// ErrNotConnected says that there is no server now.
var ErrNotConnected = errors.New("memif not connected")

// fullPause is how long a writer waits for room: the protocol has no interrupt for it.
const fullPause = 50 * time.Microsecond

// ReadPacket waits for a packet, copies it into b and returns its length. While there is no connection it waits for one.
// A packet longer than b is dropped; MaxPacket is always enough.
func (c *Client) ReadPacket(ctx context.Context, b []byte) (int, error) {
	v := [1][]byte{b[:0:len(b)]}
	_, err := c.ReadBurst(ctx, v[:])
	return len(v[0]), err
}

// ReadBurst waits for packets, copies as many as wait and as v has slices, each up to its capacity, sets their lengths and
// returns how many they were, at least one. v is the caller's before and after.
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

// spin looks for packets for a while.
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

// take receives what waits in the next queue that has something.
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

// sleep waits for the server to ring, unless packets came meanwhile.
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

// arm asks for interrupts, or for none, and tells whether packets wait.
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

// WritePacket sends one packet; it copies b. While the ring is full it waits until ctx ends; ErrNotConnected if there is no
// connection, io.ErrShortBuffer if b is empty or longer than the server takes.
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
