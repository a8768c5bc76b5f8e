package forward

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/vswitch/port"
)

// adoptSocket adopts a listening socket, which is not served before resume.
func (m *memifs) adoptSocket(s OpenSocket) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sockets[s.Path] != nil {
		return errors.Join(fmt.Errorf("memif socket %s: %w", s.Path, ErrPortExists), unix.Close(s.Descriptor))
	}
	listener, err := memif.Adopt(s.Path, s.Descriptor, m.options(s.Path))
	if err != nil {
		return err
	}
	m.sockets[s.Path] = &memifSocket{listener: listener, adopted: true}
	return nil
}

// adopt attaches a passed connection. Its client did not notice it, so there is no event.
func (m *memifs) adopt(index uint32, from OpenPort) (*port.MemifPeer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.served[index]
	if s == nil || from.Memif == nil || !m.sockets[s.config.Socket].adopted {
		return nil, errors.Join(fmt.Errorf("interface %d is no adopted memif: %w", index, ErrNoPort),
			closeEach(from.Descriptors))
	}
	conn, err := s.server.Resume(from.Memif, from.Descriptors)
	if err != nil {
		return nil, err
	}
	p, err := port.NewMemif(conn, s.config.Bare)
	if err != nil {
		conn.Leave()
		return nil, err
	}
	if s.attached, err = m.engine.supervisor.attach(index, p); err != nil {
		conn.Leave()
		return nil, err
	}
	return p.Peer(), nil
}

// resume serves the adopted sockets.
func (m *memifs) resume() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.sockets {
		if s.adopted {
			s.adopted = false
			s.listener.Start()
		}
	}
}

// suspend stops all but the rings: clients are not accepted, and their sockets not read.
func (m *memifs) suspend() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stopped = true
	for _, s := range m.sockets {
		s.listener.Suspend()
	}
}

// openPorts returns all sockets and connections, after suspend and the end of the workers.
func (m *memifs) openPorts() OpenPorts {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all OpenPorts
	for _, path := range slices.Sorted(maps.Keys(m.sockets)) {
		all.Sockets = append(all.Sockets, OpenSocket{Path: path, Descriptor: m.sockets[path].listener.Descriptor()})
	}
	for _, index := range slices.Sorted(maps.Keys(m.served)) {
		p := m.served[index].connection()
		if p == nil {
			continue
		}
		if passed, descriptors := p.Pass(); passed != nil {
			all.Ports = append(all.Ports, OpenPort{Interface: index, Descriptors: descriptors, Memif: passed})
		}
	}
	return all
}

// connection returns the port of the client's connection; nil: no client is connected.
func (s *servedMemif) connection() *port.Memif {
	if s.attached == nil {
		return nil
	}
	p, _ := s.attached.port.(*port.Memif)
	return p
}

// releaseAll leaves all sockets and connections to another process.
func (m *memifs) releaseAll() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stopped = true
	var errs []error
	for _, s := range m.served {
		if p := s.connection(); p != nil {
			s.attached.unwatch()
			errs = append(errs, p.Release())
		}
	}
	for _, s := range m.sockets {
		s.listener.Release()
	}
	clear(m.served)
	clear(m.sockets)
	return errors.Join(errs...)
}

func closeEach(descriptors []int) error {
	var errs []error
	for _, fd := range descriptors {
		errs = append(errs, unix.Close(fd))
	}
	return errors.Join(errs...)
}
