package memif

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"time"
)

// DefaultMaxPacket is the longest packet by default: 64 KiB of payload and its headers.
const DefaultMaxPacket = 72 << 10

// Config is an interface of a server.
type Config struct {
	// ID tells the interfaces of a socket apart.
	ID uint32
	// Secret must be known by the client; the empty one asks for nothing.
	Secret Secret
	// Mode must be the client's.
	Mode Mode
	// Name is what the client is told, at most 31 bytes.
	Name string
	// RxQueues and TxQueues are how many queues a client may have in each direction as the server sees them; 0: 255, which
	// is also the most.
	RxQueues, TxQueues int
	// RingSize is the most slots a client's ring may have, a power of two; 0: 16384, which is also the most. How many it
	// has is the client's choice, and so are the sizes of its buffers.
	RingSize int
	// MaxPacket is the longest packet, in bytes; 0: DefaultMaxPacket.
	MaxPacket int
	// Connected hands over a new connection. It must not block; the queues are the callee's until it calls Conn.Release.
	Connected func(*Conn)
	// Disconnected tells that it has ended, and why; nil only if Connected is nil. It comes once for each connection, and
	// the interface takes no other one before Conn.Release.
	Disconnected func(*Conn, error)
}

func (c *Config) complete() error {
	c.RxQueues = cmp.Or(c.RxQueues, maxQueues)
	c.TxQueues = cmp.Or(c.TxQueues, maxQueues)
	c.RingSize = cmp.Or(c.RingSize, 1<<maxRingLog2)
	c.MaxPacket = cmp.Or(c.MaxPacket, DefaultMaxPacket)
	switch {
	case len(c.Secret) > secretSize:
		return fmt.Errorf("secret longer than %d bytes", secretSize)
	case min(c.RxQueues, c.TxQueues) < 1 || max(c.RxQueues, c.TxQueues) > maxQueues:
		return fmt.Errorf("queues not within 1 and %d", maxQueues)
	case !isRingSize(c.RingSize):
		return fmt.Errorf("ring size %d: not a power of two up to %d", c.RingSize, 1<<maxRingLog2)
	case c.MaxPacket < 1 || c.MaxPacket > maxPacket:
		return fmt.Errorf("longest packet not within 1 and %d", maxPacket)
	case (c.Connected == nil) != (c.Disconnected == nil):
		return errors.New("who is told of connections must be told of their ends")
	}
	return nil
}

// usualBuffer is a slot's room that a client may have in memory without pages, in bytes: more than a jumbo frame.
const usualBuffer = 16 << 10

// mostSparse bounds the memory of a connection that has no pages yet, in bytes: the pages that this side touches first are
// accounted to it.
func (c *Config) mostSparse() uint64 {
	rings := uint64(c.RxQueues) + uint64(c.TxQueues)
	return rings*(uint64(c.RingSize)*usualBuffer+ringBytes(uint32(c.RingSize))) + 1<<20
}

const (
	maxQueues = 255
	maxPacket = 1 << 20
)

func isRingSize(n int) bool { return n >= 1 && n <= 1<<maxRingLog2 && bits.OnesCount(uint(n)) == 1 }

// Interface is a server's end of a memif: one client at a time.
type Interface struct {
	config   Config
	listener *Listener

	calls sync.Mutex // serialises Connected and Disconnected

	mu      sync.Mutex
	closed  bool
	current *Conn         // until it is released
	vacated chan struct{} // closed when it is
}

// Add puts an interface on the socket; clients may connect to it at once. ErrIDInUse if there is one of that id.
func (l *Listener) Add(c Config) (*Interface, error) {
	if err := c.complete(); err != nil {
		return nil, fmt.Errorf("memif %d on %s: %w", c.ID, l.path, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, fmt.Errorf("memif %d on %s: %w", c.ID, l.path, ErrClosed)
	}
	if l.interfaces[c.ID] != nil {
		return nil, fmt.Errorf("memif %d on %s: %w", c.ID, l.path, ErrIDInUse)
	}
	i := &Interface{config: c, listener: l}
	l.interfaces[c.ID] = i
	return i, nil
}

// ID is the interface's on its socket.
func (i *Interface) ID() uint32 { return i.config.ID }

// Close ends the connection, if there is one, with the reason "interface deleted", takes the interface off the socket and
// returns when Disconnected has. It does not wait for the client: the goroutine that talks to it ends by itself. The caller holds
// no lock that the callbacks take, and is not one of them. The connection's memory stays until its owner releases it.
func (i *Interface) Close() error {
	i.listener.mu.Lock()
	if i.listener.interfaces[i.config.ID] == i {
		delete(i.listener.interfaces, i.config.ID)
	}
	i.listener.mu.Unlock()
	i.mu.Lock()
	i.closed = true
	current := i.current
	i.mu.Unlock()
	if current != nil {
		current.breakOff(errDeleted)
		i.end(current, current.Err())
	}
	return nil
}

// Disconnect ends the connection, if there is one, and tells the client the reason. The client may connect again.
func (i *Interface) Disconnect(reason string) {
	i.mu.Lock()
	current := i.current
	i.mu.Unlock()
	if current != nil {
		current.breakOff(refusal(reason))
	}
}

var (
	// errTaken refuses a client of an interface that has one.
	errTaken   = refusal("already connected")
	errDeleted = refusal("interface deleted")
)

// succession is how long a client waits for the interface while the connection before it, whose client is gone, is released.
const succession = time.Second

// taken reports whether the interface has a connection. It waits for the end of one whose client has hung up: a program that is
// restarted may be back before that was noticed.
func (i *Interface) taken() bool {
	i.mu.Lock()
	current, vacated := i.current, i.vacated
	i.mu.Unlock()
	if current == nil {
		return false
	}
	if !current.hasEnded() && !current.control.isHungUp() {
		return true
	}
	select {
	case <-vacated:
		return false
	case <-time.After(succession):
		return true
	}
}

// claim makes c the interface's connection.
func (i *Interface) claim(c *Conn) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return errDeleted
	}
	if i.current != nil {
		return errTaken
	}
	i.current, i.vacated = c, make(chan struct{})
	return nil
}

// abandon is the end of a claim that did not become a connection.
func (i *Interface) abandon(c *Conn) {
	c.Release()
	i.vacate(c)
}

func (i *Interface) vacate(c *Conn) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.current == c {
		i.current = nil
		close(i.vacated)
	}
}

// serve hands the connection over, waits for its end and hangs up.
func (i *Interface) serve(c *Conn) {
	c.parted = make(chan struct{})
	i.begin(c)
	err := c.watch()
	i.end(c, err)
	c.control.part(reasonOf(err), i.listener.parting)
	close(c.parted)
	c.control.hangUp(nil)
}

// begin calls Connected, unless the interface was closed meanwhile.
func (i *Interface) begin(c *Conn) {
	i.calls.Lock()
	defer i.calls.Unlock()
	if c.hasEnded() {
		c.Release()
		return
	}
	c.handed = true
	if i.config.Connected != nil {
		i.config.Connected(c)
	}
}

// end calls Disconnected, once, if Connected was called. Until then the memory is the handshake's.
func (i *Interface) end(c *Conn, err error) {
	i.calls.Lock()
	defer i.calls.Unlock()
	if c.hasEnded() {
		return
	}
	close(c.gone)
	switch {
	case !c.handed:
	case i.config.Disconnected != nil:
		i.config.Disconnected(c, err)
	default:
		c.Release()
	}
}
