package port

import (
	"cmp"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// ErrForeign means that descriptors from another process are not those of the port that they should be.
var ErrForeign = errors.New("not the descriptors of this port")

// Descriptors returns the descriptors of all queues of a tap, for AdoptTap in another process.
func (t *Tap) Descriptors() []int {
	all := []int{t.fd}
	for _, q := range t.extra {
		all = append(all, q.fd)
	}
	return all
}

// AdoptTap returns the tap of descriptors that another process opened with the same configuration. The host side does
// not change. The tap owns the descriptors, which AdoptTap closes on an error.
func AdoptTap(c TapConfig, descriptors []int) (*Tap, error) {
	if len(descriptors) != max(c.Queues, 1) {
		return nil, fmt.Errorf("%w: %d for a tap of %d queues", errors.Join(ErrForeign, closeEach(descriptors)),
			len(descriptors), max(c.Queues, 1))
	}
	t := &Tap{TapQueue: TapQueue{descriptors[0]}}
	for _, fd := range descriptors[1:] {
		t.extra = append(t.extra, TapQueue{fd})
	}
	if err := t.resume(c); err != nil {
		return nil, errors.Join(err, t.Release())
	}
	return t, nil
}

// resume checks that all queues belong to one tap, and finds out its offloads.
func (t *Tap) resume(c TapConfig) error {
	first, err := t.name()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrForeign, err)
	}
	for _, q := range t.extra {
		if name, err := q.name(); err != nil || name != first {
			return fmt.Errorf("%w: queue of tap %q, not of %s: %w", ErrForeign, name, first, err)
		}
	}
	t.info.Name = first
	t.info.Offload, err = t.setOffload(c) // as it is
	return err
}

// Release closes the descriptors of a tap that another process keeps.
func (t *Tap) Release() error { return closeEach(t.Descriptors()) }

// Descriptors returns the socket, for AdoptAFPacket in another process.
func (p *AFPacket) Descriptors() []int { return []int{p.fd} }

// AdoptAFPacket returns the packet socket of a descriptor that another process opened with the same configuration. The
// link does not change. The AFPacket owns the descriptors, which AdoptAFPacket closes on an error.
func AdoptAFPacket(c AFPacketConfig, descriptors []int) (*AFPacket, error) {
	if len(descriptors) != 1 {
		return nil, fmt.Errorf("%w: %d for a packet socket", errors.Join(ErrForeign, closeEach(descriptors)),
			len(descriptors))
	}
	p := &AFPacket{fd: descriptors[0]}
	if err := p.resume(c); err != nil {
		return nil, errors.Join(err, p.Release())
	}
	p.receive.prepare()
	return p, nil
}

// resume checks the socket's family and link. It asks the kernel through the socket: netlink would take longer, and
// packets wait.
func (p *AFPacket) resume(c AFPacketConfig) error {
	bound, err := unix.Getsockname(p.fd)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrForeign, err)
	}
	index, err := p.ask(unix.SIOCGIFINDEX, c.Name)
	if err != nil {
		return fmt.Errorf("%w: %q: %w", ErrNoLink, c.Name, err)
	}
	at, is := bound.(*unix.SockaddrLinklayer)
	if !is || at.Ifindex != int(index.Uint32()) {
		return fmt.Errorf("%w: the socket is not bound to link %s", ErrForeign, c.Name)
	}
	flags, err := p.ask(unix.SIOCGIFFLAGS, c.Name)
	if err != nil || flags.Uint16()&unix.IFF_UP == 0 {
		return fmt.Errorf("link %s: %w", c.Name, cmp.Or(err, ErrLinkDown))
	}
	bypass, err := unix.GetsockoptInt(p.fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS)
	if err != nil {
		return fmt.Errorf("get PACKET_QDISC_BYPASS: %w", err)
	}
	p.bypass.Store(bypass != 0)
	p.info.Ifindex = at.Ifindex
	if c.Offload {
		p.offload = Offload{Checksum: true, TCP: true, UDP: kernelSupportsUSO()}
	}
	return nil
}

// ask makes a request about a link.
func (p *AFPacket) ask(request uint, link string) (*unix.Ifreq, error) {
	about, err := unix.NewIfreq(link)
	if err != nil {
		return nil, err
	}
	return about, unix.IoctlIfreq(p.fd, request, about)
}

// Release closes the socket, which another process keeps.
func (p *AFPacket) Release() error { return closeEach(p.Descriptors()) }

func closeEach(descriptors []int) error {
	var errs []error
	for _, fd := range descriptors {
		errs = append(errs, unix.Close(fd))
	}
	return errors.Join(errs...)
}
