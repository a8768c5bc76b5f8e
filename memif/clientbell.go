package memif

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"
)

// clientBell wakes who waits for packets: the server does, and the client itself when the connection changes.
type clientBell struct {
	waiter *Waiter
	own    int
}

func newClientBell() (*clientBell, error) {
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
	return &clientBell{waiter: waiter, own: own}, nil
}

func (b *clientBell) wake() { notifyByWrite(b.own) }

func (b *clientBell) wait(ctx context.Context) error { return b.waiter.Wait(ctx) }

func (b *clientBell) listen(c *Conn) error {
	for _, q := range c.rx {
		if err := b.waiter.Add(q); err != nil {
			return err
		}
	}
	return nil
}

func (b *clientBell) forget(c *Conn) {
	for _, q := range c.rx {
		b.waiter.Remove(q)
	}
}

// close waits until nobody sleeps on the bell any more; reading stays taken.
func (b *clientBell) close(reading chan struct{}) {
	b.wake()
	reading <- struct{}{}
	_ = b.waiter.Close()
	_ = unix.Close(b.own)
}
