package memif

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
)

// A handover moves a listening socket with its interfaces and their connections to another process, and the clients
// do not notice it: memory, eventfds and control sockets stay the same, and the rings continue at the slots where they
// stopped.
//
//	Listener.Suspend   nothing is read from the clients' sockets any more
//	Conn.Pass          the queues' positions, and the descriptors  ---->  Adopt, Listener.Add, Interface.Resume
//	Conn.Leave                                                            Listener.Start
//	Listener.Release
//
// Between Suspend and Release the listener can still be closed, which disconnects the clients. Before Start the other
// one can still be released, which has no effect.

// Passed describes a suspended connection for Interface.Resume in another process. Its descriptors are the control
// socket, the regions, and the eventfds of the rings, in this order. It contains no secret.
type Passed struct {
	Info    Info
	Regions []PassedRegion
	Rings   []PassedRing
}

// PassedRegion is a region of a Passed.
type PassedRegion struct {
	Size   uint64
	Sparse bool // its pages may be accounted to the server
}

// PassedRing is a ring of a Passed.
type PassedRing struct {
	ToServer bool
	Region   uint16
	Offset   uint32
	Log2     uint8  // of the number of slots
	Next     uint16 // index of the first slot that the server has not used
}

// descriptors is the number of descriptors.
func (p *Passed) descriptors() int { return 1 + len(p.Regions) + len(p.Rings) }

// handover is the part of a Conn that concerns handovers.
type handover struct {
	suspending atomic.Bool
	parked     chan struct{} // closed when the control socket is not read any more
	left       chan struct{} // closed by Conn.Leave
	// of a resumed connection with a Broker, for the broker process, until Listener.Start; -1: none
	relay int
}

func newHandover() handover {
	return handover{parked: make(chan struct{}), left: make(chan struct{}), relay: -1}
}

// park waits for the decision about a suspended connection, or for its end. It reports whether another process
// continues it.
func (h *handover) park(gone <-chan struct{}) (left bool) {
	close(h.parked)
	select {
	case <-h.left:
		return true
	case <-gone:
		return false
	}
}

var (
	errSuspended = errors.New("memif connection suspended")
	errPassed    = errors.New("invalid description of a memif connection")
)

// Adopt is Listen for a socket that another process has suspended. It owns the descriptor. No client is served before
// Start.
func Adopt(path string, descriptor int, o ListenOptions) (*Listener, error) {
	o.complete()
	file := os.NewFile(uintptr(descriptor), path)
	defer file.Close()
	socket, err := net.FileListener(file)
	if err != nil {
		return nil, fmt.Errorf("adopt memif socket %s: %w", path, err)
	}
	listener, is := socket.(*net.UnixListener)
	if !is {
		return nil, errors.Join(fmt.Errorf("adopt memif socket %s: not a Unix socket", path), socket.Close())
	}
	return newListener(path, listener, o), nil
}

// Start serves clients and follows the resumed connections, after Adopt.
func (l *Listener) Start() {
	l.mu.Lock()
	l.started = true
	l.acceptLocked()
	l.mu.Unlock()
	for _, c := range l.resumed {
		select {
		case <-c.handover.left:
			continue
		default:
		}
		if c.control.client != nil {
			c.control.client.join(c.handover.relay)
			c.handover.relay = -1
		}
		go l.find(c.info.ID).follow(c)
	}
	l.resumed = nil
}

// Suspend stops everything but the use of the queues, until Release or Close: no client is accepted, handshakes end,
// and the sockets of connected clients are not read. It returns after that. With a Broker, all listeners must be
// suspended, which ends the broker process.
func (l *Listener) Suspend() {
	if l.options.Broker != nil {
		l.options.Broker.yield()
	}
	_ = l.socket.SetDeadline(longAgo) // wakes accept
	interfaces := l.refuseClients()
	l.running.Wait() // a client that connects from now on is the other process's
	for _, i := range interfaces {
		i.suspend()
	}
}

// suspend waits until the goroutine of the connection is parked, or the connection has ended.
func (i *Interface) suspend() {
	i.mu.Lock()
	current := i.current
	vacated := i.vacated
	i.mu.Unlock()
	if current == nil {
		return
	}
	current.handover.suspending.Store(true)
	current.control.interrupt()
	select {
	case <-current.handover.parked:
	case <-current.gone:
	case <-vacated:
	}
	i.calls.Lock() // Disconnected has returned
	defer i.calls.Unlock()
}

// Descriptor returns the descriptor of a suspended listener for Adopt in another process. It stays the listener's.
func (l *Listener) Descriptor() (descriptor int) {
	descriptor = -1
	if raw, err := l.socket.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { descriptor = int(fd) })
	}
	return descriptor
}

// Release frees a suspended listener that another process continues, or one that was never started. Neither clients nor
// callbacks notice. All connections must have been left before.
func (l *Listener) Release() {
	if !l.endOnce() {
		return
	}
	l.refuseClients()
	if l.options.Broker == nil || l.number == 0 {
		_ = l.socket.Close() // the Broker closes the others
	}
	l.running.Wait()
}

// isInterrupted reports whether a receive has ended because of Suspend.
func (c *Conn) isInterrupted(err error) bool {
	return c.handover.suspending.Load() && c.Err() == nil &&
		(errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, errBrokerGone))
}

// Pass describes a suspended connection for another process, with the descriptors, which stay the connection's. It
// returns nil for a connection that has ended or was not suspended. The queues must not be used any more; slots that
// Peek has shown are returned. The memory is the other process's: this one does not free its pages, whatever follows.
func (c *Conn) Pass() (*Passed, []int) {
	select {
	case <-c.handover.parked:
	default:
		return nil, nil
	}
	if c.touch(c.settle) != nil {
		return nil, nil
	}
	p := &Passed{Info: c.info}
	var all []int
	c.control.use(func(fd int) { all = append(all, fd) })
	for i := range c.memory.regions {
		r := &c.memory.regions[i]
		p.Regions = append(p.Regions, PassedRegion{Size: r.size, Sparse: r.sparse})
		r.sparse = false
		all = append(all, r.file)
	}
	for _, q := range c.rx {
		p.Rings = append(p.Rings, c.memory.locate(q.ring, PassedRing{ToServer: true, Next: q.next}))
		all = append(all, q.eventfd)
	}
	for _, q := range c.tx {
		p.Rings = append(p.Rings, c.memory.locate(q.ring, PassedRing{Next: q.next}))
		all = append(all, q.eventfd)
	}
	if len(all) != p.descriptors() {
		return nil, nil // the control socket is closed
	}
	return p, all
}

// settle publishes sent packets and returns received ones, so that one index describes each queue.
func (c *Conn) settle() error {
	for _, q := range c.rx {
		q.Release()
	}
	for _, q := range c.tx {
		q.flush()
	}
	return nil
}

// Leave frees a suspended connection that another process continues, or a resumed one before Listener.Start. The client
// does not notice. Before the call remove the queues from each Waiter.
func (c *Conn) Leave() {
	c.release.Do(func() {
		close(c.handover.left)
		for i := range c.memory.regions {
			c.memory.regions[i].sparse = false // its pages are not freed
		}
		_ = c.control.socket.Close()
		if client := c.control.client; client != nil && c.handover.relay >= 0 {
			closeAll([]int{c.handover.relay, client.socket})
		}
		c.free()
	})
}

// Resume continues a connection of another process on an interface of a listener that was adopted and not started. It
// owns the descriptors. Config.Connected is not called. After an error the client is disconnected when the other
// process has closed its descriptors, too.
func (i *Interface) Resume(p *Passed, descriptors []int) (*Conn, error) {
	c, err := i.resume(p, descriptors)
	if err != nil {
		return nil, fmt.Errorf("resume memif %d on %s: %w", i.config.ID, i.listener.path, err)
	}
	i.listener.resumed = append(i.listener.resumed, c)
	return c, nil
}

func (i *Interface) resume(p *Passed, descriptors []int) (_ *Conn, err error) {
	if err := i.checkPassed(p, descriptors); err != nil {
		closeAll(descriptors)
		return nil, err
	}
	control, relay, err := i.listener.takeClient(descriptors[0])
	if err != nil {
		closeAll(descriptors[1:])
		return nil, err
	}
	c := newConn(control)
	c.info = p.Info
	c.kept = descriptors[1:]
	c.handover.relay = relay
	c.handed = true
	c.parted = make(chan struct{})
	c.released = i.vacate
	c.notified = &i.notified
	if err = i.claim(c); err == nil {
		err = c.touch(func() error { return c.continueRings(p, i.config.MaxPacket) })
	}
	if err != nil {
		c.Leave()
		return nil, err
	}
	return c, nil
}

// checkPassed validates a description: the other process may be of another build.
func (i *Interface) checkPassed(p *Passed, descriptors []int) error {
	rx := 0
	tx := 0
	for _, r := range p.Rings {
		if r.Log2 > maxRingLog2 || 1<<r.Log2 > i.config.RingSize {
			return fmt.Errorf("%w: a ring of 2^%d slots", errPassed, r.Log2)
		}
		if r.ToServer {
			rx++
		} else {
			tx++
		}
	}
	var size uint64
	for _, r := range p.Regions {
		if r.Size == 0 || r.Size > i.listener.options.MaxMemory {
			return fmt.Errorf("%w: a region of %d bytes", errPassed, r.Size)
		}
		size += r.Size
	}
	switch {
	case len(descriptors) == 0 || len(descriptors) != p.descriptors():
		return fmt.Errorf("%w: %d descriptors instead of %d", errPassed, len(descriptors), p.descriptors())
	case p.Info.ID != i.config.ID || p.Info.Mode != i.config.Mode:
		return fmt.Errorf("%w: interface %d of mode %s", errPassed, p.Info.ID, p.Info.Mode)
	case rx > i.config.RxQueues || tx > i.config.TxQueues || rx+tx == 0:
		return fmt.Errorf("%w: %d and %d rings", errPassed, rx, tx)
	case len(p.Regions) > i.listener.options.MaxRegions || size > i.listener.options.MaxMemory:
		return fmt.Errorf("%w: %d regions of %d bytes", errPassed, len(p.Regions), size)
	}
	return Prepare()
}

// takeClient takes over the socket of a connected client. The relay is for client.join.
func (l *Listener) takeClient(socket int) (c *control, relay int, err error) {
	if l.options.Broker != nil {
		return l.options.Broker.take(socket)
	}
	conn, err := socketOf(socket)
	return &control{socket: conn}, -1, err
}

// continueRings maps the regions and makes the queues, at the slots where they stopped.
func (c *Conn) continueRings(p *Passed, maxPacket int) error {
	c.memory.guarded = p.Info.Guarded
	for n, r := range p.Regions {
		sealed, _, err := checkRegion(c.kept[n], r.Size)
		if err != nil {
			return err
		}
		c.memory.guarded = c.memory.guarded || !sealed
		if err := c.memory.add(c.kept[n], r.Size); err != nil {
			return err
		}
		c.memory.regions[n].sparse = r.Sparse
	}
	for n, r := range p.Rings {
		eventfd := c.kept[len(p.Regions)+n]
		at, err := c.memory.ringAt(newRing{region: r.Region, offset: r.Offset, log2: r.Log2})
		switch {
		case err != nil:
			return err
		case !isEventfd(eventfd):
			return refusal("interrupt fd is not an eventfd")
		case r.ToServer:
			q := c.serveRx(at, eventfd, maxPacket)
			q.next = r.Next
			q.held = r.Next
		default:
			q := c.serveTx(at, eventfd, maxPacket)
			q.next = r.Next
			q.sent = r.Next
		}
	}
	return nil
}
