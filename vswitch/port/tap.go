package port

import (
	"errors"
	"fmt"
	"net"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/vswitch/frame"
)

// Tap is the dataplane's end of a kernel tap interface, which lives as long as the Tap is open. One goroutine receives;
// any may transmit; Close is for when none does any more.
type Tap struct {
	fd   int
	info TapInfo
}

// OpenTap makes the tap in its namespace and sets its host side up. After an error nothing is left.
func OpenTap(c TapConfig) (*Tap, error) {
	if len(c.Name) >= unix.IFNAMSIZ {
		return nil, fmt.Errorf("tap name %q: longer than %d bytes", c.Name, unix.IFNAMSIZ-1)
	}
	var t *Tap
	err := inNamespace(c.Namespace, func() (err error) {
		t, err = openHere(c)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open tap %s: %w", c.Name, err)
	}
	return t, nil
}

func openHere(c TapConfig) (*Tap, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	t := &Tap{fd: fd}
	if err := t.create(c); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

func (t *Tap) create(c TapConfig) error {
	request, err := unix.NewIfreq(c.Name)
	if err != nil {
		return err
	}
	// EXCL: without it the kernel would hand over a persistent tap of that name, with whatever is set on it.
	request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR | unix.IFF_TUN_EXCL)
	if err := unix.IoctlIfreq(t.fd, unix.TUNSETIFF, request); err != nil {
		// EXCL says EBUSY; EINVAL is said of a name that something else than a tap has, and of other things.
		_, exists := net.InterfaceByName(c.Name)
		if errors.Is(err, unix.EBUSY) || exists == nil {
			return fmt.Errorf("%w: %w", ErrNameInUse, err)
		}
		return fmt.Errorf("TUNSETIFF: %w", err)
	}
	if err := unix.IoctlSetPointerInt(t.fd, unix.TUNSETVNETHDRSZ, frame.VirtioLen); err != nil {
		return fmt.Errorf("TUNSETVNETHDRSZ: %w", err)
	}
	if err := unix.IoctlSetPointerInt(t.fd, unix.TUNSETVNETLE, 1); err != nil {
		return fmt.Errorf("TUNSETVNETLE: %w", err)
	}
	offload, err := t.setOffload(c)
	if err != nil {
		return err
	}
	t.info, err = configure(request.Name(), c)
	t.info.Offload = offload
	return err
}

// setOffload asks for as much as the kernel knows: USO came with Linux 6.2.
func (t *Tap) setOffload(c TapConfig) (Offload, error) {
	const base = unix.TUN_F_CSUM | unix.TUN_F_TSO4 | unix.TUN_F_TSO6 | unix.TUN_F_TSO_ECN
	if c.NoOffload {
		return Offload{}, nil
	}
	if unix.IoctlSetInt(t.fd, unix.TUNSETOFFLOAD, base|unix.TUN_F_USO4|unix.TUN_F_USO6) == nil {
		return Offload{Checksum: true, TCP: true, UDP: true}, nil
	}
	if err := unix.IoctlSetInt(t.fd, unix.TUNSETOFFLOAD, base); err != nil {
		return Offload{}, fmt.Errorf("TUNSETOFFLOAD: %w", err)
	}
	return Offload{Checksum: true, TCP: true}, nil
}

// Info describes the tap as it was when it was opened.
func (t *Tap) Info() TapInfo { return t.info }

// Takes says what the kernel finishes in the frames that it is given; that is not what it hands over unfinished.
func (t *Tap) Takes() Offload {
	return Offload{Checksum: true, TCP: true, UDP: t.info.Offload.UDP || kernelTakesUSO()}
}

// Descriptor becomes readable when there is something to receive.
func (t *Tap) Descriptor() int { return t.fd }

// Arm asks for the next frame to be announced on Descriptor, or for that to end; true says that frames wait already. The
// kernel's level triggered readiness needs neither.
func (t *Tap) Arm(bool) bool { return false }

// Receive fills v's buffers, in order, as far as there are frames. An error says that the tap is gone.
func (t *Tap) Receive(v []*frame.Buffer) (int, error) {
	for i, b := range v {
		room := b.RoomWithHead(frame.VirtioLen)
		n, errno := t.read(room)
		if errno == unix.EAGAIN {
			return i, nil
		}
		if errno != 0 {
			return i, errno
		}
		b.SetLen(n - frame.VirtioLen)
		if n >= frame.VirtioLen {
			b.Virtio = frame.ReadVirtio(room)
			b.Virtio.Buffers = 0 // the kernel skips this field: it holds what was in our memory
		}
	}
	return len(v), nil
}

// Transmit sends v's frames and returns how many the kernel took. A frame that it refuses, because the host side is down
// or the frame makes no sense to it, is left empty; an error says that the tap is gone.
func (t *Tap) Transmit(v []*frame.Buffer) (int, error) {
	sent := 0
	for _, b := range v {
		whole := b.WithHead(frame.VirtioLen)
		b.Virtio.Put(whole)
		switch errno := t.write(whole); errno {
		case 0:
			sent++
		case unix.EBADFD, unix.EBADF:
			return sent, errno
		default:
			b.SetLen(0)
		}
	}
	return sent, nil
}

// Close takes the tap off the machine.
func (t *Tap) Close() error { return unix.Close(t.fd) }

// read is a raw system call: the descriptor never blocks, and the scheduler's bookkeeping costs a third of the packet
// rate. The runtime's preemption signals interrupt it.
func (t *Tap) read(b []byte) (int, unix.Errno) {
	for {
		n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(t.fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
		if errno != unix.EINTR {
			return int(n), errno
		}
	}
}

func (t *Tap) write(b []byte) unix.Errno {
	for {
		_, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(t.fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
		if errno != unix.EINTR {
			return errno
		}
	}
}
