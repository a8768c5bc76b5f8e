package memif

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Waiter is one descriptor that tells of packets in any number of receive queues. It lives as long as its owner wants,
// whatever connections come and go.
type Waiter struct {
	fd     int
	file   *os.File
	events [16]unix.EpollEvent
	closed sync.Once
}

// NewWaiter makes a waiter without queues.
func NewWaiter() (*Waiter, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make waiter: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("make waiter: %w", err)
	}
	return &Waiter{fd: fd}, nil
}

// FD becomes readable when a peer rings one of the queues, and stays so until Clear. It can be put into another epoll.
func (w *Waiter) FD() int { return w.fd }

// Add listens for a queue. Edge triggered: the eventfd is never read, so a peer that shares it cannot block the reader.
func (w *Waiter) Add(q *RxQueue) error { return w.add(q.eventfd) }

func (w *Waiter) add(eventfd int) error {
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: int32(eventfd)}
	if err := unix.EpollCtl(w.fd, unix.EPOLL_CTL_ADD, eventfd, &event); err != nil {
		return fmt.Errorf("wait for queue: %w", err)
	}
	return nil
}

// Remove must be called before the queue's connection is released: the peer holds the eventfd too, so that it would go on
// to ring.
func (w *Waiter) Remove(q *RxQueue) {
	_ = unix.EpollCtl(w.fd, unix.EPOLL_CTL_DEL, q.eventfd, nil)
}

// Clear forgets what rang until now. It never blocks. Only one goroutine at a time may call it.
func (w *Waiter) Clear() {
	for {
		n, err := unix.EpollWait(w.fd, w.events[:], 0)
		if n < len(w.events) && err != unix.EINTR {
			return
		}
	}
}

// Wait sleeps until a queue rings, the waiter is woken or ctx ends. One goroutine at a time.
func (w *Waiter) Wait(ctx context.Context) error {
	if w.file == nil {
		w.file = os.NewFile(uintptr(w.fd), "memif waiter")
	}
	if err := w.file.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("wait for packets: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = w.file.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	raw, err := w.file.SyscallConn()
	if err != nil {
		return fmt.Errorf("wait for packets: %w", err)
	}
	asked := false
	err = raw.Read(func(uintptr) bool {
		n, _ := unix.EpollWait(w.fd, w.events[:], 0)
		done := asked || n > 0
		asked = true
		return done
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	// A deadline without its context's end is the late one of a call before.
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("wait for packets: %w", err)
	}
	return nil
}

// Close ends the waiter.
func (w *Waiter) Close() (err error) {
	w.closed.Do(func() {
		if w.file != nil {
			err = w.file.Close()
			return
		}
		err = unix.Close(w.fd)
	})
	return err
}
