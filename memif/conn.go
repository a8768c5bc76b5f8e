package memif

import (
	"errors"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Mode is the packet format of an interface.
type Mode uint8

const (
	// Ethernet packets begin with the destination address.
	Ethernet Mode = iota
	// IP packets begin with the header of IPv4 or IPv6.
	IP
	// Punt is VPP's punt mode.
	Punt
)

// String returns the mode's name in interfaces.json.
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

// Info holds the negotiated parameters of a connection.
type Info struct {
	ID   uint32
	Mode Mode
	// Peer is the name of the peer's program, PeerInterface the name of its interface.
	Peer, PeerInterface string
	// RxQueues and TxQueues are numbers of queues as this side sees them.
	RxQueues, TxQueues int
	// RingSize is the size of the largest ring, in slots; BufferSize is the size of the buffer in the client's first
	// slot, in bytes, 0 if the slot had no buffer yet.
	RingSize, BufferSize int
	// Regions and Memory are how many pieces of memory and how many bytes are shared.
	Regions int
	Memory  uint64
	// Guarded means that the client's memory cannot be sealed: access is slower, and Peek copies.
	Guarded bool
	// PID and UID identify the peer's process; PID is 0 if it is in a namespace that cannot be seen.
	PID, UID int
}

// Conn is a connection: queues in memory that is shared with the peer.
//
//	connected --peer gone, Close, fault--> broken, memory still mapped --Release--> released
//	    \--Listener.Suspend--> suspended --Leave--> left to another process
type Conn struct {
	info    Info
	rx      []*RxQueue
	tx      []*TxQueue
	memory  memory
	control *control
	kept    []int // the descriptors of regions and eventfds
	release sync.Once

	ending
	service
	handover handover
}

// service is the part of a Conn that concerns a server's interface. It is empty at a client.
type service struct {
	parted   chan struct{} // closed when the client has hung up, or had time to
	handed   bool          // to Config.Connected; guarded by Interface.calls, as the closing of ending.gone is
	released func(*Conn)   // may be nil
	notified *notifyBudget // of the interface
}

func newConn(c *control) *Conn {
	return &Conn{control: c, ending: ending{gone: make(chan struct{})}, handover: newHandover()}
}

// ending is the end of a connection: any thread breaks it, and the goroutine that reads the control socket closes gone.
type ending struct {
	broken atomic.Bool
	cause  atomic.Pointer[error]
	gone   chan struct{}
}

// Gone is closed when the connection has ended; the memory is still there.
func (e *ending) Gone() <-chan struct{} { return e.gone }

// Err returns the cause of the end, nil while connected.
func (e *ending) Err() error {
	if cause := e.cause.Load(); cause != nil {
		return *cause
	}
	return nil
}

// because breaks the connection. The first cause stays, and isFirst reports whether it is this one.
func (e *ending) because(cause error) (isFirst bool) {
	e.broken.Store(true)
	return e.cause.CompareAndSwap(nil, &cause)
}

// hasEnded reports whether Gone is closed.
func (e *ending) hasEnded() bool {
	select {
	case <-e.gone:
		return true
	default:
		return false
	}
}

// Info returns the negotiated parameters.
func (c *Conn) Info() Info { return c.info }

// RxQueues returns the receive queues.
func (c *Conn) RxQueues() []*RxQueue { return c.rx }

// TxQueues returns the transmit queues.
func (c *Conn) TxQueues() []*TxQueue { return c.tx }

// Close ends the connection and tells the peer. The memory stays until Release.
func (c *Conn) Close() { c.breakOff(ErrClosed) }

// Release unmaps the memory and ends the connection if needed. Before the call, stop using the queues and the memory of
// Peek and Reserve, and remove the queues from each Waiter. It may be called again. Memory that is emptied stays mapped
// briefly: otherwise a client that does not know the end yet would read zeros from its rings.
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

// breakOff ends the connection from any thread, without waiting. The goroutine that reads the control socket does the
// rest.
func (c *Conn) breakOff(cause error) {
	if c.because(cause) {
		c.control.interrupt()
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
	if c.isInterrupted(err) {
		return errSuspended
	}
	switch {
	case err != nil:
		err = &DisconnectError{Reason: "connection lost", Remote: true, Err: err}
	case m.kind() == disconnectMessage:
		err = decodeDisconnection(m)
	default:
		err = refusal("unexpected message received")
	}
	if !c.because(err) {
		err = c.Err()
	}
	return err
}

// touch runs f, which accesses the peer's memory.
func (c *Conn) touch(f func() error) error {
	if err := c.guard(f); err != nil {
		return err
	}
	if c.broken.Load() {
		return c.Err()
	}
	return nil
}

func (c *Conn) guard(f func() error) error {
	defer c.recoverFault(debug.SetPanicOnFault(true))
	return f()
}

// recoverFault is deferred around what touches guarded memory: a fault in it ends the connection, any other panic goes
// on. old is what debug.SetPanicOnFault was.
func (c *Conn) recoverFault(old bool) {
	debug.SetPanicOnFault(old)
	r := recover()
	if r == nil {
		return
	}
	if fault, ok := r.(interface{ Addr() uintptr }); ok && c.memory.holds(fault.Addr()) {
		c.breakOff(ErrFault)
		return
	}
	panic(r) //nolint:forbidigo // unrelated panic
}

// describe completes the Info of the connection from its queues.
func (c *Conn) describe() {
	i := &c.info
	i.RxQueues = len(c.rx)
	i.TxQueues = len(c.tx)
	for _, q := range c.rx {
		i.RingSize = max(i.RingSize, q.Size())
	}
	for _, q := range c.tx {
		i.RingSize = max(i.RingSize, q.Size())
	}
	if len(c.tx) > 0 && i.BufferSize == 0 {
		i.BufferSize = int(c.tx[0].ring.descriptor(0).length)
	}
	i.Regions = len(c.memory.regions)
	i.Memory = c.memory.size()
	i.Guarded = c.memory.guarded
}

func (c *Conn) addRx(r newRing, eventfd, maxPacket int) error {
	at, err := c.memory.ringAt(r)
	if err != nil {
		return err
	}
	at.setTail(0)
	c.serveRx(at, eventfd, maxPacket)
	return nil
}

func (c *Conn) serve(at ring, eventfd, maxPacket int) queue {
	return queue{ring: at, memory: &c.memory, conn: c, server: true, maxPacket: uint32(maxPacket), eventfd: eventfd}
}

// serveRx makes a server's receive queue of a ring.
func (c *Conn) serveRx(at ring, eventfd, maxPacket int) *RxQueue {
	at.maskInterrupts(true)
	q := &RxQueue{queue: c.serve(at, eventfd, maxPacket), segments: make([][]byte, 0, at.size)}
	c.rx = append(c.rx, q)
	return q
}

func (c *Conn) addTx(r newRing, eventfd, maxPacket int) error {
	at, err := c.memory.ringAt(r)
	if err != nil {
		return err
	}
	at.setTail(0)
	c.serveTx(at, eventfd, maxPacket)
	return nil
}

// serveTx makes a server's transmit queue of a ring.
func (c *Conn) serveTx(at ring, eventfd, maxPacket int) *TxQueue {
	q := &TxQueue{queue: c.serve(at, eventfd, maxPacket)}
	c.tx = append(c.tx, q)
	return q
}
