// Package syscalltest observes the system calls of a test, and kills a process before one of its system calls.
package syscalltest

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// notification and answer are the structs seccomp_notif and seccomp_notif_resp of the kernel.
type (
	notification struct {
		id         uint64
		pid, flags uint32
		nr         int32
		arch       uint32
		ip         uint64
		args       [6]uint64
	}
	answer struct {
		id    uint64
		val   int64
		error int32
		flags uint32
	}
)

// listener is the file descriptor of a seccomp filter. A thread with the filter waits before a filtered system call
// until it is answered.
type listener int

// filter installs a filter for system calls with the given flags, and returns its listener.
func filter(flags uintptr, calls ...uint32) (listener, error) {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return 0, err
	}
	program := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}} // the number of the system call
	for _, call := range calls {
		program = append(program,
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: call, Jf: 1},
			unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_USER_NOTIF})
	}
	program = append(program, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW})
	f := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_NEW_LISTENER|flags, uintptr(unsafe.Pointer(&f)))
	if errno != 0 {
		return 0, errno
	}
	return listener(fd), nil
}

// errEnded means that no thread has the filter any more.
var errEnded = errors.New("no thread has the filter")

// next waits for a system call, for at most the given time. ok is false if there was none.
func (l listener) next(milliseconds int) (n notification, ok bool, err error) {
	poll := []unix.PollFd{{Fd: int32(l), Events: unix.POLLIN}}
	if count, err := unix.Poll(poll, milliseconds); count == 0 || errors.Is(err, unix.EINTR) {
		return n, false, nil
	}
	if poll[0].Revents&unix.POLLIN == 0 {
		return n, false, errEnded
	}
	err = l.control(unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&n))
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINTR) { // its thread ended
		return n, false, nil
	}
	return n, err == nil, err
}

// resume lets a system call happen.
func (l listener) resume(n notification) error {
	a := answer{id: n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
	return l.control(unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&a))
}

func (l listener) control(request uintptr, value unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(l), request, uintptr(value)); errno != 0 {
		return fmt.Errorf("seccomp notification: %w", errno)
	}
	return nil
}
