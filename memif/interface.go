package memif

import (
	"bytes"
	"cmp"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"sync"
	"time"
)

// DefaultMaxPacket is the longest packet by default: 64 KiB of payload and its headers.
const DefaultMaxPacket = 72 << 10

// Config configures an interface of a server.
type Config struct {
	// ID tells the interfaces of a socket apart.
	ID uint32
	// Secret is required of the client unless it is empty.
	Secret Secret
	// Mode must be the client's.
	Mode Mode
	// Name is sent to the client, at most 31 bytes.
	Name string
	// RxQueues and TxQueues are how many queues a client may have in each direction as the server sees them; 0: 255,
	// which is also the most.
	RxQueues, TxQueues int
	// RingSize is the most slots a client's ring may have, a power of two; 0: 16384, which is also the most. How many
	// it has is the client's choice, and so are the sizes of its buffers.
	RingSize int
	// MaxPacket is the longest packet, in bytes; 0: DefaultMaxPacket.
	MaxPacket int
	// Connected hands over a new connection. It must not block; the queues are the callee's until it calls
	// Conn.Release.
	Connected func(*Conn)
	// Disconnected reports the end of a connection, once for each. It may be nil only if Connected is nil. The
	// interface accepts no other connection before Conn.Release.
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
		return errors.New("callback Connected is set without Disconnected")
	}
	return nil
}

// usualBuffer is the buffer size per slot, in bytes, that may have no pages yet: more than a jumbo frame.
const usualBuffer = 16 << 10

// maxSparse bounds the memory of a connection that has no pages yet, in bytes: the pages that this side touches first
// are accounted to it.
func (c *Config) maxSparse() uint64 {
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

	notified notifyBudget

	calls sync.Mutex // serialises Connected and Disconnected

	mu      sync.Mutex
	closed  bool
	current *Conn         // until its release
	vacated chan struct{} // closed when it is
}

// Add adds an interface to the socket; clients may connect immediately. It fails with ErrIDInUse for a duplicate id.
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
	l.acceptLocked()
	return i, nil
}

// ID returns the interface's id on its socket.
func (i *Interface) ID() uint32 { return i.config.ID }

// Close ends the connection, if there is one, with the reason "interface deleted", takes the interface off the socket
// and returns when Disconnected has. It does not wait for the client: the goroutine that talks to it ends by itself.
// The caller holds no lock that the callbacks take, and is not one of them. The connection's memory stays until its
// owner releases it.
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
	// errTaken refuses a second client of an interface.
	errTaken   = refusal("already connected")
	errDeleted = refusal("interface deleted")
)

// succession bounds the wait of a client for the release of the previous connection after its client is gone.
const succession = time.Second

// taken reports whether the interface has a connection. It waits for a connection that is ending: a restarted program
// may connect before the server noticed the end of the previous process. It ends the connection of a client that has
// hung up, whatever holds up the goroutine that should notice: the kernel says that the client is gone.
func (i *Interface) taken() bool {
	i.mu.Lock()
	current := i.current
	vacated := i.vacated
	i.mu.Unlock()
	if current == nil {
		return false
	}
	if !current.hasEnded() && !current.control.isHungUp() {
		return true
	}
	if within(vacated, succession) {
		return false
	}
	current.breakOff(&DisconnectError{Reason: "connection lost", Remote: true})
	i.end(current, current.Err())
	return !within(vacated, succession)
}

// within reports whether done is closed in time.
func within(done <-chan struct{}, most time.Duration) bool {
	select {
	case <-done:
		return true
	case <-time.After(most):
		return false
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
	i.current = c
	i.vacated = make(chan struct{})
	return nil
}

// abandon ends a claim that did not become a connection.
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
	i.follow(c)
}

// follow waits for the end of a connection that was handed over, and hangs up.
func (i *Interface) follow(c *Conn) {
	err := c.watch()
	if errors.Is(err, errSuspended) {
		if c.handover.park(c.gone) {
			return
		}
		err = c.Err()
	}
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

// secretSize is the size of the secret's field in INIT. VPP keeps the last byte for a NUL.
const secretSize = 24

// hidden replaces a secret in output.
const hidden = "(secret)"

// Secret authenticates the client of an interface: at most 24 bytes, 23 with VPP. The empty secret disables that. It
// prints as "(secret)".
type Secret string

// String hides the secret.
func (s Secret) String() string { return hidden }

// GoString hides the secret.
func (s Secret) GoString() string { return hidden }

// LogValue hides the secret.
func (s Secret) LogValue() slog.Value { return slog.StringValue(hidden) }

// MarshalText hides the secret.
func (s Secret) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// matches compares in constant time.
func (s Secret) matches(got secretField) bool {
	want := secretFieldOf([]byte(s))
	return subtle.ConstantTimeCompare(want[:], got[:]) == 1
}

type secretField [secretSize]byte

// secretFieldOf returns the bytes before the first NUL.
func secretFieldOf(b []byte) secretField {
	var f secretField
	before, _, _ := bytes.Cut(b, []byte{0})
	copy(f[:], before)
	return f
}
