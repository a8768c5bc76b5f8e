package port

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/vswitch/frame"
)

// TapQueue is a queue pair of a tap.
type TapQueue struct{ fd int }

func openQueue() (TapQueue, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return TapQueue{}, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	return TapQueue{fd}, nil
}

// attach creates the tap, with a name that the kernel chooses if it is empty, or adds the queue to it.
func (q TapQueue) attach(name string, flags uint16) (string, error) {
	request, err := unix.NewIfreq(name)
	if err != nil {
		return "", err
	}
	request.SetUint16(flags)
	if err := unix.IoctlIfreq(q.fd, unix.TUNSETIFF, request); err != nil {
		return "", fmt.Errorf("TUNSETIFF: %w", err)
	}
	return request.Name(), nil
}

// name returns the tap's name; EBADFD means that the tap is deleted.
func (q TapQueue) name() (string, error) {
	request, err := unix.NewIfreq("")
	if err != nil {
		return "", err
	}
	if err := unix.IoctlIfreq(q.fd, unix.TUNGETIFF, request); err != nil {
		return "", fmt.Errorf("TUNGETIFF: %w", err)
	}
	return request.Name(), nil
}

// Descriptor is readable when frames wait.
func (q TapQueue) Descriptor() int { return q.fd }

// Arm is not needed: readiness is level triggered.
func (TapQueue) Arm(bool) bool { return false }

// Receive fills the buffers of v in order and returns their number. An error means that the tap is deleted.
func (q TapQueue) Receive(v []*frame.Buffer) (int, error) {
	for i, b := range v {
		room := b.RoomWithHead(frame.VirtioLen)
		n, errno := q.read(room)
		if errno == unix.EAGAIN {
			return i, nil
		}
		if errno != 0 {
			return i, errno
		}
		b.SetLen(n - frame.VirtioLen)
		if n >= frame.VirtioLen {
			b.Virtio = frame.ReadVirtio(room)
			b.Virtio.Buffers = 0 // the kernel does not write this field
		}
	}
	return len(v), nil
}

// read makes a raw system call: the descriptor never blocks, and the Go scheduler's accounting costs a third of the
// packet rate. Preemption signals of the runtime interrupt it.
func (q TapQueue) read(b []byte) (int, unix.Errno) {
	for {
		n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(q.fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))),
			uintptr(len(b)))
		if errno != unix.EINTR {
			return int(n), errno
		}
	}
}

func (q TapQueue) write(b []byte) unix.Errno {
	for {
		_, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(q.fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))),
			uintptr(len(b)))
		if errno != unix.EINTR {
			return errno
		}
	}
}
