package forward

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/vswitch/port"
)

// OpenMemif serves a memif, whose client may come and go: the interface has a port while there is one, which PeerConnected
// and PeerGone tell. The socket's file is made with the first memif on it and removed with the last. Errors:
// ErrPortExists, and the kernel's, such as that of a missing directory; after an error nothing is left behind.
func (e *Engine) OpenMemif(index uint32, c port.MemifConfig) error { return e.memifs.open(index, c) }

// memifs are the sockets that memifs are served on. Their clients' connections are ports for the keeper.
//
//	served --client--> connected --client gone, memory given up--> served
//	   \---------ClosePort----------\--> gone
type memifs struct {
	engine *Engine
	log    *slog.Logger
	broker *memif.Broker // nil: none

	mu      sync.Mutex
	stopped bool
	sockets map[string]*memifSocket
	served  map[uint32]*servedMemif
}

// memifSocket is a socket with the number of memifs on it.
type memifSocket struct {
	listener *memif.Listener
	memifs   int
}

// servedMemif is one memif. Its attachment belongs to the goroutine of the connection, of which there is one at a time.
type servedMemif struct {
	engine     *Engine
	log        *slog.Logger
	index      uint32
	config     port.MemifConfig
	end        *memif.Interface
	closing    chan struct{}
	attachment *attachment
}

func newMemifs(e *Engine, log *slog.Logger, broker *memif.Broker) *memifs {
	return &memifs{engine: e, log: log, broker: broker, sockets: map[string]*memifSocket{}, served: map[uint32]*servedMemif{}}
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
	order := memif.Config{ID: c.ID, Secret: c.Secret, Name: c.Name, Connected: s.connected, Disconnected: s.disconnected,
		RxQueues: c.RxQueues, TxQueues: c.TxQueues, RingSize: c.RingSize}
	if c.Bare {
		order.Mode = memif.IP
	}
	if s.end, err = socket.listener.Add(order); err != nil {
		return errors.Join(fmt.Errorf("serve memif: %w", err), m.leaveLocked(c.Socket))
	}
	socket.memifs++
	m.served[index] = s
	return nil
}

// socketLocked finds a socket, or makes it.
func (m *memifs) socketLocked(path string) (*memifSocket, error) {
	if s := m.sockets[path]; s != nil {
		return s, nil
	}
	refusals := &refusalLog{log: m.log, socket: path}
	listener, err := memif.Listen(path, memif.ListenOptions{Name: "weft-vswitch", Refused: refusals.add, Broker: m.broker})
	if err != nil {
		return nil, fmt.Errorf("open socket: %w", err)
	}
	s := &memifSocket{listener: listener}
	m.sockets[path] = s
	return s, nil
}

// close ends a memif, its connection, and its socket if it was the last there. False: there is none.
func (m *memifs) close(index uint32) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.served[index]
	if s == nil {
		return false, nil
	}
	return true, m.closeLocked(s)
}

// closeLocked waits for the connection's end, in which workers take part: nobody of them waits for m.
func (m *memifs) closeLocked(s *servedMemif) error {
	delete(m.served, s.index)
	close(s.closing)
	err := s.end.Close()
	m.sockets[s.config.Socket].memifs--
	return errors.Join(err, m.leaveLocked(s.config.Socket))
}

// leaveLocked ends a socket that nobody uses any more.
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

// connected makes a port of a connection. Where that fails the connection ends.
func (s *servedMemif) connected(c *memif.Conn) {
	p, err := port.NewMemif(c, s.config.Bare)
	if err == nil {
		s.attachment, err = s.engine.keeper.employ(s.index, p)
	}
	if err != nil {
		s.log.Warn("memif not attached", "interface", s.config.Name, "err", err)
		c.Close()
		return
	}
	s.engine.settle() // who hears of the client may send to it
	s.tell(Event{Kind: PeerConnected, Interface: s.index, Peer: p.Peer()})
}

// disconnected gives the memory up when no worker uses it any more, which lets the next client in.
func (s *servedMemif) disconnected(c *memif.Conn, why error) {
	if s.attachment == nil {
		c.Release()
		return
	}
	s.tell(Event{Kind: PeerGone, Interface: s.index, Err: why})
	a := s.attachment
	s.attachment = nil
	if err := s.engine.keeper.dismiss(a); err != nil {
		s.log.Warn("memif not closed", "interface", s.config.Name, "err", err)
	}
}

// tell waits for room: control would not know otherwise whether there is a client. Control itself closes, so that nobody
// waits for it then.
func (s *servedMemif) tell(ev Event) {
	select {
	case s.engine.events <- ev:
	case <-s.closing:
	case <-s.engine.stopped:
	}
}
