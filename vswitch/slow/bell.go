package slow

import (
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Bell wakes one sleeping thread from threads that must not wait. The sleeper arms the bell, looks at its work once more,
// and waits; a ringer adds work, then looks whether anybody sleeps. Both are sequentially consistent, so that one of them
// sees the other: no wake-up is lost.
type Bell struct {
	fd     int
	asleep atomic.Bool
}

// NewBell makes a bell; Close frees it.
func NewBell() (*Bell, error) {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make eventfd: %w", err)
	}
	return &Bell{fd: fd}, nil
}

// Ring wakes the sleeper if there is one. It takes no lock, and a system call only when somebody sleeps.
func (b *Bell) Ring() {
	if !b.asleep.CompareAndSwap(true, false) {
		return
	}
	one := uint64(1)
	// The only failure is a full counter, and then the sleeper has been rung for.
	_, _, _ = unix.RawSyscall(unix.SYS_WRITE, uintptr(b.fd), uintptr(unsafe.Pointer(&one)), 8)
}

// Arm says that the caller is about to sleep; it must look for work after that and before it sleeps.
func (b *Bell) Arm() { b.asleep.Store(true) }

// Disarm says that the caller is awake, and forgets what was rung. It reads even where nobody seems to have rung: a ringer
// may have been between looking and writing when Disarm was called last, and what is left unread would end every sleep.
func (b *Bell) Disarm() {
	b.asleep.Store(false)
	var count uint64
	_, _, _ = unix.RawSyscall(unix.SYS_READ, uintptr(b.fd), uintptr(unsafe.Pointer(&count)), 8)
}

// Descriptor becomes readable when the bell is rung.
func (b *Bell) Descriptor() int { return b.fd }

// Wait sleeps until rung or until deadline (zero: none), and not at all when idle denies that there is nothing to do.
func (b *Bell) Wait(deadline time.Time, idle func() bool) error {
	b.Arm()
	defer b.Disarm()
	if !idle() {
		return nil
	}
	for {
		_, err := unix.Ppoll([]unix.PollFd{{Fd: int32(b.fd), Events: unix.POLLIN}}, limitOf(deadline), nil)
		switch {
		case err == nil:
			return nil
		case err != unix.EINTR: // which is a signal of the runtime's: nobody has rung
			return fmt.Errorf("wait for bell: %w", err)
		}
	}
}

// limitOf is the time until then, as the kernel takes it; nil: none.
func limitOf(deadline time.Time) *unix.Timespec {
	if deadline.IsZero() {
		return nil
	}
	t := unix.NsecToTimespec(int64(max(0, time.Until(deadline))))
	return &t
}

// Close frees the bell; nobody may ring any more.
func (b *Bell) Close() error { return unix.Close(b.fd) }
