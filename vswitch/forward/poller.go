package forward

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// bellToken stands for the worker's bell among the ports' indexes.
const bellToken = NoInterface

// poller knows which descriptors are readable: epoll, level triggered, so that what is not read is told again.
type poller struct {
	fd     int
	events [64]unix.EpollEvent
}

func (p *poller) open(bell int) error {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return fmt.Errorf("make epoll: %w", err)
	}
	p.fd = fd
	return p.add(bell, bellToken, 0)
}

// add announces fd, queue n of a port, with both numbers. Any goroutine may call it.
func (p *poller) add(fd int, port uint32, n int) error {
	event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(port), Pad: int32(n)}
	if err := unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, fd, &event); err != nil {
		return fmt.Errorf("watch port: %w", err)
	}
	return nil
}

// remove ends the announcement; for a descriptor that is not announced it does nothing. Any goroutine may call it.
func (p *poller) remove(fd int) {
	_, _, _ = unix.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(p.fd), unix.EPOLL_CTL_DEL, uintptr(fd), 0, 0, 0)
}

// ready looks without waiting.
func (p *poller) ready() []unix.EpollEvent {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.fd), uintptr(unsafe.Pointer(&p.events)), uintptr(len(p.events)), 0, 0, 0)
	if errno != 0 {
		return nil
	}
	return p.events[:n]
}

// wait sleeps until something is readable. It is a system call that the Go scheduler knows of: a thread that sleeps must
// not hold up a garbage collection.
func (p *poller) wait() ([]unix.EpollEvent, error) {
	n, err := unix.EpollWait(p.fd, p.events[:], -1)
	if errors.Is(err, unix.EINTR) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("wait for ports: %w", err)
	}
	return p.events[:n], nil
}

func (p *poller) close() error { return unix.Close(p.fd) }
