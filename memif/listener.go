package memif

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/bits"
	"net"
	"os"
	"slices"
	"sync"
	"time"
)

// Refusal is a refused connection.
type Refusal struct {
	// ID is the requested interface, if the client sent it.
	ID      uint32
	IDKnown bool
	// Peer is the client's program name, PID its process (0 if it is not visible), UID its user.
	Peer     string
	PID, UID int
	// Err is the cause. It wraps a DisconnectError if the client got a reason.
	Err error
}

// ListenOptions configures a Listener. All fields are optional.
type ListenOptions struct {
	// Mode is the socket file's; 0: it follows from the directory. Who may enter that may connect: the user always, the
	// group and others if the directory has their x.
	Mode fs.FileMode
	// Name is the server's program name, at most 31 bytes.
	Name string
	// Refused is called for each refused client, by its goroutine.
	Refused func(Refusal)
	// HandshakeTimeout bounds the time from accept to connected; default 5 s.
	HandshakeTimeout time.Duration
	// MaxPending is how many clients may be between accept and connected, or between the end of a refused connection
	// and the closing of its descriptors; more wait to be accepted. Default 16.
	MaxPending int
	// Broker holds the clients' sockets. Without it, clients can block threads of this process: use a Broker for
	// untrusted clients.
	Broker *Broker
	// MaxMemory bounds the shared memory of a connection, in bytes; default 1 GiB. Pages that the server touches first
	// may be accounted to it.
	MaxMemory uint64
	// MaxRegions bounds the pieces of memory of a connection; default 64, at most 256.
	MaxRegions int
}

func (o *ListenOptions) complete() {
	o.Name = cmp.Or(o.Name, "weft")
	o.HandshakeTimeout = cmp.Or(o.HandshakeTimeout, 5*time.Second)
	o.MaxPending = cmp.Or(o.MaxPending, 16)
	o.MaxMemory = cmp.Or(o.MaxMemory, 1<<30)
	o.MaxRegions = min(cmp.Or(o.MaxRegions, 64), 256)
}

// Listener is a socket with interfaces on it.
type Listener struct {
	path    string
	options ListenOptions
	socket  *net.UnixListener
	file    fs.FileInfo // as it was bound
	pending chan struct{}
	closing chan struct{}
	running sync.WaitGroup
	number  uint32        // at the Broker; 0: without one, or not accepting yet
	parting time.Duration // of an Interface's connections

	resumed []*Conn // before Start

	mu         sync.Mutex
	started    bool // it may accept clients
	accepting  bool // it has begun to
	closed     bool // no client is accepted any more
	ended      bool // by Close or Release
	interfaces map[uint32]*Interface
	handshakes map[*control]struct{}
}

// Listen binds a socket at path, shorter than 108 bytes; "@name" is one without a file. A socket file that no process
// listens on is replaced, anything else there is an error. The interfaces come with Add. Clients can connect, and are
// served from the first Add on: before it, the client of any interface would be refused.
func Listen(path string, o ListenOptions) (*Listener, error) {
	o.complete()
	socket, err := bind(path, o.Mode)
	if err != nil {
		return nil, fmt.Errorf("memif socket %s: %w", path, err)
	}
	l := newListener(path, socket, o)
	l.started = true
	return l, nil
}

func newListener(path string, socket *net.UnixListener, o ListenOptions) *Listener {
	l := &Listener{
		path:       path,
		options:    o,
		socket:     socket,
		pending:    make(chan struct{}, o.MaxPending),
		closing:    make(chan struct{}),
		parting:    parting,
		interfaces: make(map[uint32]*Interface),
		handshakes: make(map[*control]struct{}),
	}
	if !isAbstract(path) {
		l.file, _ = os.Lstat(path)
	}
	return l
}

// acceptLocked begins to accept clients if the listener is started and has an interface. The caller holds l.mu.
func (l *Listener) acceptLocked() {
	if !l.started || l.accepting || l.closed || len(l.interfaces) == 0 {
		return
	}
	l.accepting = true
	if l.options.Broker != nil {
		l.number = l.options.Broker.listen(&brokeredListener{
			socket:  l.socket,
			pending: l.options.MaxPending,
			serve:   l.serve,
		})
	} else {
		l.running.Go(l.accept)
	}
}

// Path returns the address of the listener.
func (l *Listener) Path() string { return l.path }

// Close closes all interfaces, removes the socket file if it is still the listener's, and returns when the callbacks of
// all interfaces have. It does not wait for clients.
func (l *Listener) Close() error {
	if !l.endOnce() {
		return nil
	}
	all := l.refuseClients()
	l.removeFile()
	var err error
	if l.number != 0 {
		l.options.Broker.unlisten(l.number)
	} else {
		err = l.socket.Close()
	}
	for _, i := range all {
		_ = i.Close()
	}
	l.running.Wait()
	if err != nil {
		return fmt.Errorf("close memif socket %s: %w", l.path, err)
	}
	return nil
}

// endOnce reports whether the caller is the first that ends the listener.
func (l *Listener) endOnce() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := !l.ended
	l.ended = true
	return first
}

// refuseClients ends all handshakes, accepts no client any more and returns the interfaces.
func (l *Listener) refuseClients() []*Interface {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		close(l.closing)
	}
	for c := range l.handshakes {
		c.interrupt()
	}
	return slices.Collect(maps.Values(l.interfaces))
}

func (l *Listener) removeFile() {
	if l.file == nil {
		return
	}
	if now, err := os.Lstat(l.path); err == nil && os.SameFile(l.file, now) {
		_ = os.Remove(l.path)
	}
}

func (l *Listener) accept() {
	for {
		select {
		case l.pending <- struct{}{}:
		case <-l.closing:
			return
		}
		socket, err := l.socket.AcceptUnix()
		switch {
		case err == nil:
			go l.serve(&control{socket: &packetSocket{UnixConn: socket}})
			continue
		case errors.Is(err, net.ErrClosed):
			return
		}
		<-l.pending
		select {
		case <-l.closing: // with a deadline in the past, see Suspend
			return
		case <-time.After(10 * time.Millisecond): // probably no descriptors left: other goroutines may close some
		}
	}
}

// serve runs a client's connection from hello to its end.
func (l *Listener) serve(c *control) {
	h := &handshake{listener: l, control: c, conn: newConn(c)}
	if !l.admit(c) {
		c.hangUp(nil)
		l.leave()
		return
	}
	err := h.run()
	l.forget(c)
	if err != nil {
		h.refuse(err)
		l.leave() // after the client's descriptors are closed, which may take long
		return
	}
	l.leave()
	h.attached.serve(h.conn)
}

// leave gives the slot of a pending client back. A Broker counts its clients itself.
func (l *Listener) leave() {
	if l.options.Broker == nil {
		<-l.pending
	}
}

func (l *Listener) admit(c *control) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.handshakes[c] = struct{}{}
	}
	return !l.closed
}

func (l *Listener) forget(c *control) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.handshakes, c)
}

func (l *Listener) find(id uint32) *Interface {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.interfaces[id]
}

// helloRings is the highest index of a ring in a hello, as libmemif sends it. FD.io's gomemif takes it for the number
// of rings, and a client that gets 0 makes none. The rings of an interface are bounded when the client adds them.
const helloRings = 255

// hello offers the longest rings of all interfaces: the client has not named one yet.
func (l *Listener) hello() hello {
	l.mu.Lock()
	defer l.mu.Unlock()
	slots := 1
	for _, i := range l.interfaces {
		slots = max(slots, i.config.RingSize)
	}
	return hello{
		name:        l.options.Name,
		minVersion:  version,
		maxVersion:  version,
		maxRegion:   uint16(l.options.MaxRegions - 1),
		maxToServer: helloRings,
		maxToClient: helloRings,
		maxRingLog2: uint8(bits.Len(uint(slots)) - 1),
	}
}
