package slow

import (
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Bell wakes one sleeping thread from threads that must not block. The sleeper arms the bell, checks for work again and
// waits; a ringer adds work, then checks whether the sleeper is asleep. Both operations are sequentially consistent, so
// at least one side sees the other and no wake-up is lost.
type Bell struct {
	fd     int
	asleep atomic.Bool
}

// NewBell creates a bell. Close frees it.
func NewBell() (*Bell, error) {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create eventfd: %w", err)
	}
	return &Bell{fd: fd}, nil
}

// Ring wakes the sleeper, if it is asleep. It takes no lock and makes a system call only to wake the sleeper.
func (b *Bell) Ring() {
	if !b.asleep.CompareAndSwap(true, false) {
		return
	}
	one := uint64(1)
	// The write fails only if the counter is full, and then the wake-up is already pending.
	_, _, _ = unix.RawSyscall(unix.SYS_WRITE, uintptr(b.fd), uintptr(unsafe.Pointer(&one)), 8)
}

// Arm announces that the caller is about to sleep. The caller must check for work between Arm and sleeping.
func (b *Bell) Arm() { b.asleep.Store(true) }

// Disarm announces that the caller is awake and clears pending wake-ups. It always reads the eventfd: during the
// previous Disarm a ringer may have been between its check and its write, and an unread wake-up would end every later
// sleep.
func (b *Bell) Disarm() {
	b.asleep.Store(false)
	var count uint64
	_, _, _ = unix.RawSyscall(unix.SYS_READ, uintptr(b.fd), uintptr(unsafe.Pointer(&count)), 8)
}

// Descriptor returns the eventfd, which becomes readable when the bell rings.
func (b *Bell) Descriptor() int { return b.fd }

// Wait sleeps until the bell rings or deadline passes (zero: no deadline). It returns at once if idle returns false.
func (b *Bell) Wait(deadline time.Time, idle func() bool) error {
	b.Arm()
	defer b.Disarm()
	if !idle() {
		return nil
	}
	for {
		_, err := unix.Ppoll([]unix.PollFd{{Fd: int32(b.fd), Events: unix.POLLIN}}, timeout(deadline), nil)
		switch {
		case err == nil:
			return nil
		case err != unix.EINTR: // EINTR is a signal of the Go runtime
			return fmt.Errorf("wait for bell: %w", err)
		}
	}
}

// timeout converts a deadline to the timeout of ppoll. A zero deadline becomes nil, no timeout.
func timeout(deadline time.Time) *unix.Timespec {
	if deadline.IsZero() {
		return nil
	}
	t := unix.NsecToTimespec(int64(max(0, time.Until(deadline))))
	return &t
}

// Close frees the bell. Ring must not be called after Close.
func (b *Bell) Close() error { return unix.Close(b.fd) }
