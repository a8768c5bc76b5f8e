package port

import (
	"errors"
	"fmt"
	"net"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/vswitch/frame"
)

// Tap is the dataplane's end of a kernel tap interface, which lives as long as the Tap is open. It receives from the first of
// its queues. One goroutine receives from each queue; any may transmit; Close is for when none does any more.
type Tap struct {
	TapQueue
	more []TapQueue
	info TapInfo

	deleting sync.WaitGroup
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
	first, err := openQueue()
	if err != nil {
		return nil, err
	}
	t := &Tap{TapQueue: first}
	if err := t.create(c); err != nil {
		defer t.Wait()
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

func (t *Tap) create(c TapConfig) error {
	// EXCL: without it the kernel would hand over a persistent tap of that name, with whatever is set on it.
	flags := uint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR | unix.IFF_TUN_EXCL)
	if c.Queues > 1 {
		flags |= unix.IFF_MULTI_QUEUE
	}
	name, err := t.attach(c.Name, flags)
	if err != nil {
		// EXCL says EBUSY; EINVAL is said of a name that something else than a tap has, and of other things.
		_, exists := net.InterfaceByName(c.Name)
		if errors.Is(err, unix.EBUSY) || exists == nil {
			return fmt.Errorf("%w: %w", ErrNameInUse, err)
		}
		return err
	}
	for range c.Queues - 1 {
		if err := t.addQueue(name, flags&^unix.IFF_TUN_EXCL); err != nil {
			return err
		}
	}
	// These, and the offloads, are the tap's, whichever queue they are said to.
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
	t.info, err = configure(name, c)
	t.info.Offload = offload
	return err
}

// addQueue opens one more pair of queues of the tap that has been made.
func (t *Tap) addQueue(name string, flags uint16) error {
	q, err := openQueue()
	if err != nil {
		return err
	}
	t.more = append(t.more, q)
	_, err = q.attach(name, flags)
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

// More returns the queues besides the first.
func (t *Tap) More() []TapQueue { return t.more }

// Transmit sends v's frames and returns how many the kernel took. Frames of a flow go by the same queue, in order; by that queue
// the kernel then sends what answers them. A frame that it refuses, because the host side is down or the frame makes no sense
// to it, is left empty; an error says that the tap is gone.
func (t *Tap) Transmit(v []*frame.Buffer) (int, error) {
	sent := 0
	for _, b := range v {
		q := t.queueOf(b)
		whole := b.WithHead(frame.VirtioLen)
		b.Virtio.Put(whole)
		switch errno := q.write(whole); errno {
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

// queueOf is the queue that a frame's flow goes by.
func (t *Tap) queueOf(b *frame.Buffer) TapQueue {
	if len(t.more) == 0 {
		return t.TapQueue
	}
	if n := flowOf(b.Bytes()) % uint32(len(t.more)+1); n > 0 {
		return t.more[n-1]
	}
	return t.TapQueue
}

// Close takes the tap off the machine; Wait waits until the kernel has done all of it.
func (t *Tap) Close() error {
	_ = t.vanish() // what is left of the tap goes with its descriptors, which takes longer
	err := unix.Close(t.fd)
	for _, q := range t.more {
		err = errors.Join(err, unix.Close(q.fd))
	}
	return err
}
