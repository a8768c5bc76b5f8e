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

// vectorPort is an interface's end on the machine.
type vectorPort interface {
	receiver
	transmitter
	// Close is called when no worker uses the port any more.
	Close() error
}

// receiver is a queue of a port, which one worker receives from.
type receiver interface {
	// Receive fills buffers in order and returns how many; fewer than asked for: no more frames wait. An error says that
	// the port is broken.
	Receive([]*frame.Buffer) (int, error)
	// Descriptor becomes readable when frames wait.
	Descriptor() int
	// Arm switches the announcement of frames on Descriptor; true says that some wait already.
	Arm(on bool) bool
}

// transmitter is used by any worker.
type transmitter interface {
	// Transmit sends frames and returns how many were taken; one that is refused it leaves empty. It keeps none. An error
	// says that the port is broken.
	Transmit([]*frame.Buffer) (int, error)
	// Takes says what may be left undone in a frame to transmit; it never changes.
	Takes() port.Offload
}

// sharer is a port whose frames wait in memory shared with a peer. To look there costs little, so that it is looked at for
// a while before the peer is asked to announce the next.
type sharer interface {
	// Faults returns how many frames came wrong since it was asked last. The receiver asks.
	Faults() uint64
	// Done says that no buffer of the last Receive is used any more: they may borrow the peer's memory until then.
	Done()
}

// attachment is a port at work for an interface.
type attachment struct {
	index   uint32 // of its interface
	port    vectorPort
	takes   port.Offload // the port's, at hand
	shared  sharer       // the port, or nil
	inlets  []*inlet     // what it receives from: one queue, or several
	keeper  *keeper
	failure atomic.Pointer[portFailure]
	queues  []queue // by worker: frames to transmit at the end of its vector
}

// inlet is a queue that a port receives from. All but its first three fields are its owner's alone.
type inlet struct {
	receiver
	of     *attachment
	owner  *worker
	active bool // on the owner's list of what to receive from
	begun  bool // it has looked at the shared memory once
	quiet  int  // looks in vain since the last frame
	burst  int  // most frames of the next turn
	trace  tracer
}

// newAttachment spreads the queues over the workers, beginning with another one for each port.
func newAttachment(index uint32, p vectorPort, e *Engine) *attachment {
	a := &attachment{index: index, port: p, takes: p.Takes(), keeper: e.keeper, queues: make([]queue, len(e.workers))}
	a.shared, _ = p.(sharer)
	for n, r := range receiversOf(p) {
		a.inlets = append(a.inlets, &inlet{receiver: r, of: a, owner: e.workers[(int(index)+n)%len(e.workers)], burst: 1})
	}
	return a
}

func receiversOf(p vectorPort) []receiver {
	all := []receiver{p}
	if tap, is := p.(*port.Tap); is {
		for _, q := range tap.More() {
			all = append(all, q)
		}
	}
	return all
}

// portFailure is why a port broke.
type portFailure struct{ err error }

// queue collects frames for one port during a vector.
type queue struct {
	frames [frame.VectorSize]*frame.Buffer
	n      int
}

// portTable is what workers see: attachments by port index. Never changed once it is published.
type portTable struct {
	interfaces []*attachment // by interface index
}

func (t portTable) at(index uint32) *attachment {
	if int(index) < len(t.interfaces) {
		return t.interfaces[index]
	}
	return nil
}

// with returns a copy of the table that has a at index; nil removes.
func (t portTable) with(index uint32, a *attachment) portTable {
	t.interfaces = replaced(t.interfaces, int(index), a)
	return t
}

func replaced(list []*attachment, n int, a *attachment) []*attachment {
	next := make([]*attachment, max(len(list), n+1))
	copy(next, list)
	next[n] = a
	return next
}

// fail takes the port out of use, by whichever worker met the error first; the keeper does the rest.
func (a *attachment) fail(err error) {
	a.silence()
	if a.failure.CompareAndSwap(nil, &portFailure{err}) {
		a.keeper.bell.Ring()
	}
}

// silence ends the announcement of frames.
func (a *attachment) silence() {
	for _, i := range a.inlets {
		i.owner.poll.remove(i.Descriptor())
	}
}

// OpenTap makes a tap and lets interface index receive and send through it. The interface may be set before or after;
// until SetInterface and Publish its frames are dropped. Errors: port.ErrNameInUse, port.ErrNamespaceGone, ErrPortExists,
// and the kernel's; after an error nothing is left behind.
func (e *Engine) OpenTap(index uint32, c port.TapConfig) (port.TapInfo, error) {
	var info port.TapInfo
	err := e.keeper.add(index, func() (vectorPort, error) {
		t, err := port.OpenTap(c)
		if err != nil {
			return nil, err
		}
		info = t.Info()
		return t, nil
	})
	return info, err
}

// ClosePort removes the interface's port, its memif, or its share of a tunnels' socket from the machine, after what waits there
// has been taken in. It returns when no worker touches it any more, which needs Run to run or to have ended; ErrNoPort where
// there is none.
func (e *Engine) ClosePort(index uint32) error {
	e.drain(index)
	if served, err := e.memifs.close(index); served {
		return err
	}
	return e.keeper.remove(index)
}

// OpenAFPacket attaches interface index to a link of the machine, which stays when the port is closed. Where the link goes
// down or away the port breaks, and is attached again when the link is there and up; c.SetUp is for the first time only.
// Errors: port.ErrNoLink, port.ErrLinkDown, ErrPortExists, and the kernel's; after an error nothing is left behind.
func (e *Engine) OpenAFPacket(index uint32, c port.AFPacketConfig) (port.AFPacketInfo, error) {
	var info port.AFPacketInfo
	err := e.keeper.add(index, func() (vectorPort, error) {
		p, err := port.OpenAFPacket(c)
		if err != nil {
			return nil, err
		}
		info, c.SetUp = p.Info(), false
		return p, nil
	})
	return info, err
}

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

// closeLocked waits for the connection's end, in which workers take part: none of them waits for m.
func (m *memifs) closeLocked(s *servedMemif) error {
	delete(m.served, s.index)
	close(s.closing)
	err := s.end.Close()
	m.sockets[s.config.Socket].memifs--
	return errors.Join(err, m.leaveLocked(s.config.Socket))
}

// leaveLocked closes an unused socket.
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

// refusalPause is how long a socket's refusals are only counted after one was logged: who knocks ten thousand times a
// minute must not fill the log.
const refusalPause = 5 * time.Second

// refusalLog tells of clients that a socket turned away.
type refusalLog struct {
	log    *slog.Logger
	socket string

	mu     sync.Mutex
	last   time.Time
	unsaid int
}

func (l *refusalLog) add(r memif.Refusal) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if !l.last.IsZero() && now.Sub(l.last) < refusalPause {
		l.unsaid++
		return
	}
	l.log.Warn("memif client refused", "socket", l.socket, "id", r.ID, "peer", r.Peer, "pid", r.PID, "uid", r.UID,
		"unsaid", l.unsaid, "err", r.Err)
	l.last, l.unsaid = now, 0
}
