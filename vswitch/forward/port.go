package forward

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/port"
)

// vectorPort is a port: a tap, an AF_PACKET socket or a memif.
type vectorPort interface {
	receiver
	transmitter
	// Close is called when no worker uses the port any more.
	Close() error
}

// receiver is a receive queue of a port, which one worker uses.
type receiver interface {
	// Receive fills buffers in order and returns their number; a number below len means that no more frames wait. An error means
	// that the port failed.
	Receive([]*frame.Buffer) (int, error)
	// Descriptor returns a descriptor that is readable when frames wait.
	Descriptor() int
	// Arm enables or disables interrupts on Descriptor. It returns true if frames wait already.
	Arm(on bool) bool
}

// transmitter is the transmit side of a port, which any worker uses.
type transmitter interface {
	// Transmit sends frames and returns how many it accepted; it empties a refused frame. The caller keeps the buffers. An error
	// means that the port failed.
	Transmit([]*frame.Buffer) (int, error)
	// Takes returns the offloads that the port supports; they never change.
	Offload() port.Offload
}

// sharedMemory is a port with rings in memory shared with a peer. Workers poll it for a while before they enable its interrupts,
// as polling it is cheap.
type sharedMemory interface {
	// Faults returns the number of invalid descriptors since the last call. Only the receiver calls it.
	Faults() uint64
	// Done returns the buffers of the last Receive to the peer: they may borrow its memory.
	Done()
}

// attachedPort is a port attached to an interface.
type attachedPort struct {
	index      uint32 // of the interface
	port       vectorPort
	offload    port.Offload // of the port
	shared     sharedMemory // the port if it has shared memory, or nil
	rxQueues   []*rxQueue   // at least one
	supervisor *supervisor
	failure    atomic.Pointer[portFailure]
	txQueues   []txQueue // by worker
}

// newAttachedPort spreads the queues over the workers. The index of the port selects the first worker.
func newAttachedPort(index uint32, p vectorPort, e *Engine) *attachedPort {
	a := &attachedPort{index: index, port: p, offload: p.Offload(), supervisor: e.supervisor, txQueues: make([]txQueue, len(e.workers))}
	a.shared, _ = p.(sharedMemory)
	for n, r := range receiversOf(p) {
		a.rxQueues = append(a.rxQueues, &rxQueue{receiver: r, port: a, owner: e.workers[(int(index)+n)%len(e.workers)], burst: 1})
	}
	return a
}

func receiversOf(p vectorPort) []receiver {
	all := []receiver{p}
	if tap, is := p.(*port.Tap); is {
		for _, q := range tap.ExtraQueues() {
			all = append(all, q)
		}
	}
	return all
}

// portFailure is the error of a failed port.
type portFailure struct{ err error }

// txQueue collects the frames to a port during a vector.
type txQueue struct {
	frames [frame.VectorSize]*frame.Buffer
	n      int
}

// portTable is the table of attached ports. It is immutable once published.
type portTable struct {
	interfaces []*attachedPort // by index
}

func (t portTable) at(index uint32) *attachedPort {
	if int(index) < len(t.interfaces) {
		return t.interfaces[index]
	}
	return nil
}

// with returns a copy of the table with a at an index; nil removes the port there.
func (t portTable) with(index uint32, a *attachedPort) portTable {
	next := make([]*attachedPort, max(len(t.interfaces), int(index)+1))
	copy(next, t.interfaces)
	next[index] = a
	return portTable{next}
}

// fail takes a failed port out of use. The first error counts, and the supervisor does the rest.
func (a *attachedPort) fail(err error) {
	a.unwatch()
	if a.failure.CompareAndSwap(nil, &portFailure{err}) {
		a.supervisor.bell.Ring()
	}
}

// unwatch removes the receive queues from epoll.
func (a *attachedPort) unwatch() {
	for _, i := range a.rxQueues {
		i.owner.rx.poll.remove(i.Descriptor())
	}
}

// OpenTap creates a tap as the port of an interface. Its frames are dropped until SetInterface and Publish, which may come before
// or after. Errors are port.ErrNameInUse, port.ErrNamespaceGone, ErrPortExists and system errors; an error leaves nothing behind.
func (e *Engine) OpenTap(index uint32, c port.TapConfig) (port.TapInfo, error) {
	var info port.TapInfo
	err := e.supervisor.add(index, func() (vectorPort, error) {
		t, err := port.OpenTap(c)
		if err != nil {
			return nil, err
		}
		info = t.Info()
		return t, nil
	})
	return info, err
}

// ClosePort closes the interface's port or memif, after it forwarded the frames that wait there. It returns ErrNoPort if there is
// none. No worker uses the port after it returns. Run must be running or have ended.
func (e *Engine) ClosePort(index uint32) error {
	e.drain(index)
	if served, err := e.memifs.close(index); served {
		return err
	}
	return e.supervisor.remove(index)
}

// OpenAFPacket attaches an interface to a network link, which stays when the port is closed. If the link goes down or is deleted,
// the port fails and is opened again when the link is up; c.SetUp applies to the first open only. Errors are port.ErrNoLink,
// port.ErrLinkDown, ErrPortExists and system errors; an error leaves nothing behind.
func (e *Engine) OpenAFPacket(index uint32, c port.AFPacketConfig) (port.AFPacketInfo, error) {
	var info port.AFPacketInfo
	err := e.supervisor.add(index, func() (vectorPort, error) {
		p, err := port.OpenAFPacket(c)
		if err != nil {
			return nil, err
		}
		info, c.SetUp = p.Info(), false
		return p, nil
	})
	return info, err
}

// OpenMemif serves a memif. The interface has a port while a client is connected; PeerConnected and PeerGone report that. The
// first memif of a socket creates its file and the last one removes it. Errors are ErrPortExists and system errors; an error
// leaves nothing behind.
func (e *Engine) OpenMemif(index uint32, c port.MemifConfig) error { return e.memifs.open(index, c) }

// memifs are the memif sockets with their interfaces. The connections of clients are ports of the supervisor.
//
//	served --client--> connected --client gone, memory released--> served
//	   \---------ClosePort----------\--> gone
type memifs struct {
	engine *Engine
	log    *slog.Logger
	broker *memif.Broker // nil: this process accepts clients

	mu      sync.Mutex
	stopped bool
	sockets map[string]*memifSocket
	served  map[uint32]*servedMemif
}

// memifSocket is a listening socket with its number of memifs.
type memifSocket struct {
	listener *memif.Listener
	memifs   int
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
	if s.server, err = socket.listener.Add(order); err != nil {
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
	refusals := &refusalLog{log: m.log, socket: path}
	listener, err := memif.Listen(path, memif.ListenOptions{Name: "weft-vswitch", Refused: refusals.add, Broker: m.broker})
	if err != nil {
		return nil, fmt.Errorf("open socket: %w", err)
	}
	s := &memifSocket{listener: listener}
	m.sockets[path] = s
	return s, nil
}

// close closes a memif with its connection, and the socket after its last memif. It returns false if there is no such memif.
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

// refusalPause is the time after a logged refusal during which a socket's refusals are only counted: a client that retries all
// the time must not fill the log.
const refusalPause = 5 * time.Second

// refusalLog logs the clients that a socket refuses.
type refusalLog struct {
	log    *slog.Logger
	socket string

	mu         sync.Mutex
	last       time.Time
	suppressed int
}

func (l *refusalLog) add(r memif.Refusal) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if !l.last.IsZero() && now.Sub(l.last) < refusalPause {
		l.suppressed++
		return
	}
	l.log.Warn("memif client refused", "socket", l.socket, "id", r.ID, "peer", r.Peer, "pid", r.PID, "uid", r.UID,
		"suppressed", l.suppressed, "err", r.Err)
	l.last, l.suppressed = now, 0
}
