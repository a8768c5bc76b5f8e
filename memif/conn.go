package memif

import (
	"errors"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Mode is what an interface's packets are.
type Mode uint8

const (
	// Ethernet packets begin with the destination address.
	Ethernet Mode = iota
	// IP packets begin with the header of IPv4 or IPv6.
	IP
	// Punt is VPP's third.
	Punt
)

// String is the mode's name in interfaces.json.
func (m Mode) String() string {
	switch m {
	case Ethernet:
		return "ethernet"
	case IP:
		return "ip"
	default:
		return "punt"
	}
}

// Info is what was agreed upon when a connection was made.
type Info struct {
	ID   uint32
	Mode Mode
	// Peer is the name of the peer's program, PeerInterface that of its interface.
	Peer, PeerInterface string
	// RxQueues and TxQueues are numbers of queues as this side sees them.
	RxQueues, TxQueues int
	// RingSize is the largest ring's, in slots; BufferSize what the client put into the first slot, in bytes, 0 if it had
	// put nothing there yet.
	RingSize, BufferSize int
	// Regions and Memory are how many pieces of memory and how many bytes are shared.
	Regions int
	Memory  uint64
	// Guarded says that the client's memory cannot be sealed: it is used more slowly, with a copy more in Peek.
	Guarded bool
	// PID and UID are those of the peer's process; PID is 0 if it is in a namespace that cannot be seen.
	PID, UID int
}

// Conn is a connection: queues in memory that is shared with the peer.
//
//	connected --peer gone, Close, fault--> broken, memory still mapped --Release--> released
type Conn struct {
	info    Info
	rx      []*RxQueue
	tx      []*TxQueue
	memory  memory
	control *control
	// kept are the eventfds and, of a client, the regions' descriptors.
	kept []int

	broken   atomic.Bool
	cause    atomic.Pointer[error]
	gone     chan struct{}
	parted   chan struct{} // of a server: closed when the client has hung up, or had time to
	handed   bool          // to Config.Connected; guarded by Interface.calls, as gone's closing is
	release  sync.Once
	released func(*Conn) // may be nil
}

func newConn(c *control) *Conn { return &Conn{control: c, gone: make(chan struct{})} }

// Info tells what was agreed upon.
func (c *Conn) Info() Info { return c.info }

// RxQueues are the queues to receive from.
func (c *Conn) RxQueues() []*RxQueue { return c.rx }

// TxQueues are the queues to send to.
func (c *Conn) TxQueues() []*TxQueue { return c.tx }

// Gone is closed when the connection has ended; the memory is still there.
func (c *Conn) Gone() <-chan struct{} { return c.gone }

// Err is why the connection ended, nil while it lasts.
func (c *Conn) Err() error {
	if cause := c.cause.Load(); cause != nil {
		return *cause
	}
	return nil
}

// Close ends the connection and tells the peer. The memory stays until Release.
func (c *Conn) Close() { c.breakOff(ErrClosed) }

// Release gives up the memory. Its caller says that nobody uses the queues any more, nor what Peek and Reserve lent, and
// that no Waiter holds them; only then may it be called. It ends the connection if that lasts. It may be called again. Memory that is
// emptied stays a moment longer: a client that was not told yet would find zeros in its rings.
func (c *Conn) Release() {
	c.release.Do(func() {
		c.breakOff(ErrClosed)
		if c.parted == nil || !c.memory.isEmptied() {
			c.free()
			return
		}
		go func() {
			<-c.parted
			c.free()
		}()
	})
}

func (c *Conn) free() {
	c.memory.unmap()
	closeAll(c.kept)
	c.kept = nil
	if c.released != nil {
		c.released(c)
	}
}

// breakOff ends the connection from any thread, without waiting. The goroutine that reads the control socket does the rest.
func (c *Conn) breakOff(cause error) {
	c.broken.Store(true)
	if c.cause.CompareAndSwap(nil, &cause) {
		c.control.interrupt()
	}
}

// hasEnded reports whether Gone is closed.
func (c *Conn) hasEnded() bool {
	select {
	case <-c.gone:
		return true
	default:
		return false
	}
}

// watch reads the control socket until the connection ends, and returns why.
func (c *Conn) watch() error {
	m, fd, err := c.control.receive()
	for errors.Is(err, errBrokerGone) && c.control.rejoin() {
		m, fd, err = c.control.receive()
	}
	if fd >= 0 {
		_ = unix.Close(fd)
	}
	switch {
	case err != nil:
		err = &DisconnectError{Reason: "connection lost", Remote: true, Err: err}
	case m.kind() == disconnectMessage:
		err = decodeDisconnection(m)
	default:
		err = refusal("unexpected message received")
	}
	c.broken.Store(true)
	if !c.cause.CompareAndSwap(nil, &err) {
		err = *c.cause.Load()
	}
	return err
}
