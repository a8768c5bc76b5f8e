package forward

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/vswitch/port"
)

// OpenMemif serves a memif. The interface has a port while a client is connected; PeerConnected and PeerGone report
// that. The first memif of a socket creates its file and the last one removes it. Errors are ErrPortExists and system
// errors; after an error no part of the memif is left.
func (h *hostPorts) OpenMemif(index uint32, c port.MemifConfig) error { return h.memifs.open(index, c) }

// memifs are the memif sockets with their interfaces. The connections of clients are ports of the supervisor.
//
//	served --client--> connected --client gone, memory released--> served
//	   \---------ClosePort----------\--> gone
type memifs struct {
	engine *Engine
	log    *slog.Logger
	broker *memif.Broker // nil: this process accepts clients
	counts refusalCounts

	mu      sync.Mutex
	stopped bool
	sockets map[string]*memifSocket
	served  map[uint32]*servedMemif
}

// memifSocket is a listening socket with its number of memifs.
type memifSocket struct {
	listener *memif.Listener
	memifs   int
	adopted  bool // and not started
}

// servedMemif is a memif. The goroutine of its one connection owns attached.
type servedMemif struct {
	engine   *Engine
	log      *slog.Logger
	index    uint32
	config   port.MemifConfig
	server   *memif.Interface
	closing  chan struct{}
	attached *attachedPort
}

func newMemifs(e *Engine, log *slog.Logger, broker *memif.Broker) *memifs {
	return &memifs{
		engine:  e,
		log:     log,
		broker:  broker,
		sockets: map[string]*memifSocket{},
		served:  map[uint32]*servedMemif{},
	}
}

func (m *memifs) open(index uint32, c port.MemifConfig) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.stopped:
		return ErrStopped
	case index >= MaxInterfaces:
		return ErrNoInterface
	case m.served[index] != nil:
		return ErrPortExists
	}
	socket, err := m.socketLocked(c.Socket)
	if err != nil {
		return err
	}
	s := &servedMemif{engine: m.engine, log: m.log, index: index, config: c, closing: make(chan struct{})}
	order := memif.Config{
		ID:           c.ID,
		Secret:       c.Secret,
		Name:         c.Name,
		Connected:    s.connected,
		Disconnected: s.disconnected,
		RxQueues:     c.RxQueues, TxQueues: c.TxQueues, RingSize: c.RingSize,
	}
	if c.Bare {
		order.Mode = memif.IP
	}
	m.counts.follow(c)
	if s.server, err = socket.listener.Add(order); err != nil {
		m.counts.forget(c)
		return errors.Join(fmt.Errorf("serve memif: %w", err), m.leaveLocked(c.Socket))
	}
	socket.memifs++
	m.served[index] = s
	return nil
}

// socketLocked returns a socket, and opens it if needed.
func (m *memifs) socketLocked(path string) (*memifSocket, error) {
	if s := m.sockets[path]; s != nil {
		return s, nil
	}
	listener, err := memif.Listen(path, m.options(path))
	if err != nil {
		return nil, fmt.Errorf("open socket: %w", err)
	}
	s := &memifSocket{listener: listener}
	m.sockets[path] = s
	return s, nil
}

func (m *memifs) options(path string) memif.ListenOptions {
	refusals := &refusalLog{log: m.log, socket: path, counts: &m.counts}
	return memif.ListenOptions{Name: "weft-vswitch", Refused: refusals.add, Broker: m.broker}
}

// close closes a memif with its connection, and the socket after its last memif. It returns false if there is no such
// memif.
func (m *memifs) close(index uint32) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.served[index]
	if s == nil {
		return false, nil
	}
	return true, m.closeLocked(s)
}

// closeLocked waits for the end of the connection and thereby for the workers, which never wait for m.
func (m *memifs) closeLocked(s *servedMemif) error {
	delete(m.served, s.index)
	close(s.closing)
	err := s.server.Close()
	m.counts.forget(s.config)
	m.sockets[s.config.Socket].memifs--
	return errors.Join(err, m.leaveLocked(s.config.Socket))
}

// leaveLocked closes a socket without memifs.
func (m *memifs) leaveLocked(path string) error {
	s := m.sockets[path]
	if s.memifs > 0 {
		return nil
	}
	delete(m.sockets, path)
	return s.listener.Close()
}

func (m *memifs) closeAll() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stopped = true
	var errs []error
	for _, s := range m.served {
		errs = append(errs, m.closeLocked(s))
	}
	return errors.Join(errs...)
}

// connected attaches a connection as a port, or closes it on an error.
func (s *servedMemif) connected(c *memif.Conn) {
	p, err := port.NewMemif(c, s.config.Bare)
	if err == nil {
		s.attached, err = s.engine.supervisor.attach(s.index, p)
	}
	if err != nil {
		s.log.Warn("cannot attach memif", "interface", s.config.Name, "err", err)
		c.Close()
		return
	}
	s.engine.synchronise() // a client of this event may send to the port
	s.send(Event{Kind: PeerConnected, Interface: s.index, Peer: p.Peer()})
}

// disconnected releases the memory when no worker uses it any more. Then the next client may connect.
func (s *servedMemif) disconnected(c *memif.Conn, why error) {
	if s.attached == nil {
		c.Release()
		return
	}
	s.send(Event{Kind: PeerGone, Interface: s.index, Err: why})
	a := s.attached
	s.attached = nil
	if err := s.engine.supervisor.detach(a); err != nil {
		s.log.Warn("cannot close memif", "interface", s.config.Name, "err", err)
	}
}

// send waits for room, because control needs every event of a client. It gives up when control closes the memif.
func (s *servedMemif) send(ev Event) {
	select {
	case s.engine.events <- ev:
	case <-s.closing:
	case <-s.engine.stopped:
	}
}
