package forward

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/vswitch/port"
)

// OpenPort is a tap, a packet socket or the connection of a memif with its descriptors, which another process can
// adopt.
type OpenPort struct {
	Interface   uint32
	Descriptors []int
	Memif       *memif.Passed // nil: no memif
}

// OpenSocket is a listening memif socket, which another process can adopt.
type OpenSocket struct {
	Path       string
	Descriptor int
}

// OpenPorts are all ports and memif sockets of an engine.
type OpenPorts struct {
	Ports   []OpenPort
	Sockets []OpenSocket
}

// passable is a port with descriptors that another process can adopt.
type passable interface {
	Descriptors() []int
	// Release closes the descriptors without deleting the links or memifs behind them.
	Release() error
}

// AdoptMemifSocket continues to listen on a memif socket that another process passed, once Resume is called. The memifs
// of the socket follow by OpenMemif. The engine owns the descriptor.
func (h *hostPorts) AdoptMemifSocket(s OpenSocket) error { return h.memifs.adoptSocket(s) }

// AdoptMemif attaches the connection of a memif, which another process passed, to an open memif, and returns its
// client. It owns the descriptors. After an error the memif waits for a client.
func (h *hostPorts) AdoptMemif(index uint32, from OpenPort) (*port.MemifPeer, error) {
	return h.memifs.adopt(index, from)
}

// Resume serves the adopted memif sockets, which belong to this process from now on. Run follows.
func (h *hostPorts) Resume() { h.memifs.resume() }

// AdoptTap is OpenTap for a tap that another process passed. Without descriptors the tap is opened as a failed port is.
func (h *hostPorts) AdoptTap(index uint32, c port.TapConfig, descriptors []int) error {
	return h.supervisor.adopt(index, len(descriptors) > 0, func() (vectorPort, error) {
		return orNothing(port.AdoptTap(c, descriptors))
	}, func() (vectorPort, error) { return orNothing(port.OpenTap(c)) })
}

// AdoptAFPacket is OpenAFPacket for a packet socket that another process passed. Without descriptors the socket is
// opened as a failed port is.
func (h *hostPorts) AdoptAFPacket(index uint32, c port.AFPacketConfig, descriptors []int) error {
	c.SetUp = false
	return h.supervisor.adopt(index, len(descriptors) > 0, func() (vectorPort, error) {
		return orNothing(port.AdoptAFPacket(c, descriptors))
	}, func() (vectorPort, error) { return orNothing(port.OpenAFPacket(c)) })
}

// orNothing returns a nil interface for an error.
func orNothing[P vectorPort](p P, err error) (vectorPort, error) {
	if err != nil {
		return nil, err
	}
	return p, nil
}

// adopt attaches a passed port, which open opens again after a failure, or else plans to open it.
func (s *supervisor) adopt(index uint32, passed bool, adopt, open func() (vectorPort, error)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case index >= MaxInterfaces:
		return ErrNoInterface
	case s.ports[index] != nil:
		return ErrPortExists
	}
	p := &supervisedPort{open: adopt, pause: minRetryPause, retryAt: time.Now()}
	if passed {
		if err := s.openLocked(index, p); err != nil {
			return err
		}
	}
	p.open = open
	s.ports[index] = p
	return nil
}

// Suspend does the part of a handover for which packets need not wait, before the context of Run ends: no client of a
// memif is accepted any more, and the ends of connections are not noticed.
func (h *hostPorts) Suspend() { h.memifs.suspend() }

// openPorts returns all that another process can adopt, after the end of the workers.
func (h *hostPorts) openPorts() OpenPorts {
	h.memifs.suspend() // unless Suspend has
	all := h.memifs.openPorts()
	all.Ports = append(all.Ports, h.supervisor.openPorts()...)
	return all
}

func (s *supervisor) openPorts() []OpenPort {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []OpenPort
	for _, index := range slices.Sorted(maps.Keys(s.ports)) {
		a := s.ports[index].attached
		if a == nil || a.failure.Load() != nil {
			continue
		}
		if p, is := a.port.(passable); is {
			all = append(all, OpenPort{Interface: index, Descriptors: p.Descriptors()})
		}
	}
	return all
}

// releaseAll closes all ports, which another process keeps, after the end of the workers.
func (s *supervisor) releaseAll() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	s.publish(portTable{})
	var errs []error
	for _, p := range s.ports {
		if p.attached == nil {
			continue
		}
		p.attached.unwatch()
		if kept, is := p.attached.port.(passable); is {
			errs = append(errs, kept.Release())
		}
	}
	s.closing.Wait()
	clear(s.ports)
	return errors.Join(errs...)
}

// Abandon frees an engine that never ran. Adopted ports stay with the process that passed them.
func (e *Engine) Abandon() error {
	close(e.stopped)
	err := errors.Join(e.memifs.releaseAll(), e.supervisor.releaseAll())
	e.free()
	return err
}

// closePorts closes all ports after the end of the workers, or leaves them to the process that Config.HandOver passes
// them to.
func (h *hostPorts) closePorts() error {
	if h.handOver != nil && h.handOver(h.openPorts) {
		return errors.Join(h.memifs.releaseAll(), h.supervisor.releaseAll())
	}
	return errors.Join(h.memifs.closeAll(), h.supervisor.closeAll())
}
