package memif

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Waiter is one descriptor that becomes readable for packets in any of its receive queues. It is independent of the
// lifetime of connections.
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

// Remove must be called before the queue's connection is released: the peer holds the eventfd too, so that it would go
// on to ring.
func (w *Waiter) Remove(q *RxQueue) {
	_ = unix.EpollCtl(w.fd, unix.EPOLL_CTL_DEL, q.eventfd, nil)
}

// Clear discards the interrupts so far. It never blocks. Only one goroutine at a time may call it.
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

// completer notifies a client's eventfd without blocking. The client shares the eventfd and its flags: it can fill the
// counter and clear O_NONBLOCK, which blocks a writer forever. Only the kernel adds to an eventfd without waiting, so
// the completer submits an empty asynchronous read, and its completion notifies the eventfd.
type completer struct {
	context uintptr
	nothing int // an empty file
}

const (
	// completions bounds the completions that wait to be read.
	completions = 64
	// iocbRead is IOCB_CMD_PREAD.
	iocbRead = 0
	// iocbTell is IOCB_FLAG_RESFD: add to the eventfd when done.
	iocbTell = 1
	// completionSize is the size of struct io_event.
	completionSize = 32
)

// iocb is the kernel's struct of that name on little endian machines.
type iocb struct {
	_             uint64 // data
	_, _          uint32 // key, flags of the read
	opcode        uint16
	_             int16 // priority
	fd            uint32
	_, _          uint64 // buffer and its length: unused
	_, _          uint64 // offset, reserved
	flags, tellFD uint32
}

var (
	// theCompleter is shared by the process, because contexts are scarce; nil before Prepare.
	theCompleter atomic.Pointer[completer]
	preparing    sync.Mutex

	openCompleter = newCompleter // replaced by tests
)

// Prepare opens the resources for notifying clients without waiting for them, unless they are open already. A server
// with many clients calls it when it starts, before the machine's contexts for asynchronous I/O are taken
// (fs.aio-max-nr). While it fails, clients are refused, and each client retries it.
func Prepare() error {
	if theCompleter.Load() != nil {
		return nil
	}
	preparing.Lock()
	defer preparing.Unlock()
	if theCompleter.Load() != nil {
		return nil
	}
	c, err := openCompleter()
	if err != nil {
		return err
	}
	theCompleter.Store(c)
	return nil
}

func newCompleter() (*completer, error) {
	fd, err := unix.MemfdCreate("memif bell", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("prepare notifications: %w", err)
	}
	c := &completer{nothing: fd}
	_, _, errno := unix.Syscall(unix.SYS_IO_SETUP, completions, uintptr(unsafe.Pointer(&c.context)), 0)
	if errno != 0 {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("prepare notifications by asynchronous I/O: %w", errno)
	}
	return c, nil
}

// notify adds one to a peer's eventfd. It never waits for the peer, whatever that does to the eventfd.
func notify(eventfd int) {
	c := theCompleter.Load()
	if c == nil {
		return // a server has no connections then
	}
	request := iocb{opcode: iocbRead, fd: uint32(c.nothing), flags: iocbTell, tellFD: uint32(eventfd)}
	list := [1]*iocb{&request}
	for c.submit(&list) == unix.EAGAIN {
		c.takeBack()
	}
}

func (c *completer) submit(list *[1]*iocb) unix.Errno {
	_, _, errno := unix.RawSyscall(unix.SYS_IO_SUBMIT, c.context, 1, uintptr(unsafe.Pointer(list)))
	return errno
}

func (c *completer) takeBack() {
	var events [completions * completionSize]byte
	var now unix.Timespec
	_, _, _ = unix.RawSyscall6(unix.SYS_IO_GETEVENTS, c.context, 0, completions,
		uintptr(unsafe.Pointer(&events)), uintptr(unsafe.Pointer(&now)), 0)
}

// notifyByWrite adds one to an eventfd that this process has made and shares, if at all, with a server that it trusts.
// It looks first whether the write would wait.
func notifyByWrite(eventfd int) {
	look := []unix.PollFd{{Fd: int32(eventfd), Events: unix.POLLOUT}}
	if n, err := unix.Poll(look, 0); n != 1 || err != nil {
		return
	}
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	_, _ = unix.Write(eventfd, one[:])
}
