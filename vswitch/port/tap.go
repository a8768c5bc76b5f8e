package port

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/vswitch/frame"
)

// ErrNameInUse means that the namespace has an interface of that name.
var ErrNameInUse = errors.New("an interface of that name exists")

// ErrNamespaceGone means that the path cannot be opened or is not a network namespace.
var ErrNamespaceGone = errors.New("network namespace cannot be entered")

// TapConfig configures a tap. The host side is the kernel's end.
type TapConfig struct {
	Namespace     string         // path of a network namespace; empty: of the process
	Name          string         // at most 15 bytes; empty: the kernel chooses tapN
	HostMAC       frame.MAC      // zero: the kernel chooses
	HostMTU       int            // 0: 1500
	Up            bool           // set the host side up
	Queues        int            // queue pairs; 0: one
	NoOffload     bool           // no GSO frames and partial checksums from the kernel
	HostAddresses []netip.Prefix // of the host side
}

// TapInfo describes an open tap.
type TapInfo struct {
	Name    string // of the host side
	Ifindex int    // in the namespace of the host side
	HostMAC frame.MAC
	HostMTU int
	Offload Offload // of frames from the kernel
}

// Tap is the dataplane's end of a kernel tap interface, which is deleted by Close. The embedded queue is the first one.
// One goroutine receives from each queue, any goroutine may transmit, and Close must come last.
type Tap struct {
	TapQueue
	extra []TapQueue
	info  TapInfo

	deleting sync.WaitGroup
}

// OpenTap creates a tap in its namespace and configures the host side. An error leaves nothing behind.
func OpenTap(c TapConfig) (*Tap, error) {
	if len(c.Name) >= unix.IFNAMSIZ {
		return nil, fmt.Errorf("tap name %q: longer than %d bytes", c.Name, unix.IFNAMSIZ-1)
	}
	var t *Tap
	err := inNamespace(c.Namespace, func() (err error) {
		t, err = openTap(c)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open tap %s: %w", c.Name, err)
	}
	return t, nil
}

func openTap(c TapConfig) (*Tap, error) {
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
	// Without EXCL the kernel would open an existing persistent tap of that name, with its settings.
	flags := uint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR | unix.IFF_TUN_EXCL)
	if c.Queues > 1 {
		flags |= unix.IFF_MULTI_QUEUE
	}
	name, err := t.attach(c.Name, flags)
	if err != nil {
		// EXCL results in EBUSY. EINVAL has several causes, one of which is a link of that name that is not a tap.
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
	// These settings, and the offloads, apply to all queues of the tap.
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

// addQueue adds a queue pair to the tap.
func (t *Tap) addQueue(name string, flags uint16) error {
	q, err := openQueue()
	if err != nil {
		return err
	}
	t.extra = append(t.extra, q)
	_, err = q.attach(name, flags)
	return err
}

// setOffload enables the offloads that the kernel supports.
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

// Info describes the tap when it was opened.
func (t *Tap) Info() TapInfo { return t.info }

// Offload returns the work that the kernel completes in transmitted frames. It differs from Info().Offload, which is
// about received frames.
func (t *Tap) Offload() Offload {
	return Offload{Checksum: true, TCP: true, UDP: t.info.Offload.UDP || kernelSupportsUSO()}
}

// ExtraQueues returns the queues after the first one.
func (t *Tap) ExtraQueues() []TapQueue { return t.extra }

// Transmit sends the frames of v and returns how many the kernel accepted. Frames of a flow use one queue, in order;
// the kernel sends replies through the same queue. Transmit empties refused frames: the host side is down, or the frame
// is invalid. An error means that the tap is deleted.
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

// queueOf returns the queue for a frame's flow.
func (t *Tap) queueOf(b *frame.Buffer) TapQueue {
	if len(t.extra) == 0 {
		return t.TapQueue
	}
	if n := flowHash(b.Bytes()) % uint32(len(t.extra)+1); n > 0 {
		return t.extra[n-1]
	}
	return t.TapQueue
}

// Close deletes the tap. Wait waits until the kernel has finished that.
func (t *Tap) Close() error {
	_ = t.remove() // otherwise the tap ends with its descriptors, which takes longer
	err := unix.Close(t.fd)
	for _, q := range t.extra {
		err = errors.Join(err, unix.Close(q.fd))
	}
	return err
}
