package memif

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"
)

// brokerThreads bounds the threads of a broker process, which ends when it needs more and is then replaced. Each
// descriptor with a close that blocks takes one thread. Kubelet may limit the processes and threads of a pod
// (podPidsLimit, often 4096), and the Broker's process ends when it gets none: it needs some dozens.
const brokerThreads = 2048

// A listener's clients are accepted at a bounded rate, or one that connects again and again would take the time of
// others. All memifs of a container may come at once.
const (
	acceptRate  = 100 // a second
	acceptBurst = 512
)

// The messages of a Splice are passed at a bounded rate: client and server could agree to keep the process busy. A
// handshake has some dozens.
const (
	passRate  = 1000 // a second
	passBurst = 4 * maxUnread
)

// ServeBroker is the process of a Broker: a program's main function calls it when it was started with the command of
// StartBroker. It returns when the Broker's process has ended. Before it serves clients it calls confine, unless that
// is nil: from there on it opens no files, executes no programs, and needs no capabilities.
func ServeBroker(confine func()) error {
	// It ends with the Broker's process, whichever signal a terminal or a supervisor sends to both.
	signal.Ignore(unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGPIPE)
	debug.SetMaxThreads(brokerThreads)
	channel, err := socketOf(brokerChannel)
	if err != nil {
		return fmt.Errorf("memif broker: %w", err)
	}
	null, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("memif broker: open %s: %w", os.DevNull, err)
	}
	if confine != nil {
		confine()
	}
	p := &brokerProcess{
		channel:   channel,
		null:      null,
		listeners: map[uint32]*acceptor{},
		dialing:   map[uint64]chan reached{},
	}
	return p.serve()
}

// serve handles the notes of the Broker until that is gone, which is the usual end, or does not know the state of this
// process any more.
func (p *brokerProcess) serve() error {
	for {
		n, fds, err := receiveNote(p.channel)
		switch {
		case err == nil:
			p.handle(n, fds)
		case p.lost.Load() != nil:
			// The next process gets all sockets as they are: shut down, they would be useless to it.
			return fmt.Errorf("memif broker: %w", *p.lost.Load())
		default:
			p.end()
			return nil
		}
	}
}

// tell sends a note. The Broker waits for notes, so a process that cannot send one ends, and the next process finds out
// about each client.
func (p *brokerProcess) tell(n note) {
	err := sendNote(p.channel, n)
	if err == nil || hasHungUp(err) {
		return
	}
	p.lost.CompareAndSwap(nil, &err)
	_ = p.channel.CloseRead() // ends serve
}

// end closes the listening sockets, and ends the connections of Splices. All end with the process, but a client may
// have blocked one of its threads in a close that no signal ends, and then the process keeps all sockets: the next
// dataplane or agent could not bind them, and pods would stay connected without a way to disconnect them.
func (p *brokerProcess) end() {
	for _, d := range p.listeners {
		p.closing.Go(d.close)
	}
	p.closing.Wait()
}

// brokerProcess is the state of the broker process.
type brokerProcess struct {
	channel   *packetSocket
	null      int // replaces a descriptor that is neither memory nor an eventfd
	listeners map[uint32]*acceptor
	closing   sync.WaitGroup // of listeners

	mu      sync.Mutex
	last    uint64                  // number of a client
	dialing map[uint64]chan reached // by client of a Splice

	lost atomic.Pointer[error] // why a note did not reach the Broker
}

// acceptor accepts the clients of one listening socket.
type acceptor struct {
	process *brokerProcess
	number  uint32
	socket  *net.UnixListener
	rate    *rate.Limiter
	stop    context.CancelFunc // of accept
	ended   chan struct{}      // accept has

	mu      sync.Mutex
	changed sync.Cond
	closing bool
	busy    int // clients that are pending or being closed; of a Splice all
	most    int
	spliced map[*splicedClient]bool // of a Splice

	messages *passing // of the clients of a Splice; nil: the listener is not one
}

// passing bounds the messages that a Splice passes on.
type passing struct {
	ctx  context.Context // of the acceptor
	rate *rate.Limiter
}

// wait waits until the next message may be passed on; false: the socket is closing.
func (p *passing) wait() bool { return p.rate.Wait(p.ctx) == nil }

// await waits for room for a client and takes it; false: the socket is closing.
func (d *acceptor) await() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.busy >= d.most && !d.closing {
		d.changed.Wait()
	}
	if !d.closing {
		d.busy++
	}
	return !d.closing
}

// add counts clients that are pending or being closed. An established client that begins to end waits for no room.
func (d *acceptor) add(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.busy += n
	d.changed.Broadcast()
}

func (d *acceptor) isClosing() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.closing
}

func (p *brokerProcess) handle(n note, fds []int) {
	switch {
	case n.kind == noteListen && len(fds) == 1, n.kind == noteListenSplice && len(fds) == 1:
		p.listen(n, fds[0])
	case n.kind == noteUnlisten && p.listeners[n.listener] != nil:
		d := p.listeners[n.listener]
		delete(p.listeners, n.listener)
		p.closing.Go(d.close)
	case n.kind == noteResume && len(fds) == 2:
		p.resume(n, fds[0], fds[1])
	case n.kind == noteDispose && len(fds) == 1:
		if socket, err := socketOf(fds[0]); err == nil {
			c := &relayed{process: p, number: n.client, socket: socket}
			go c.dispose()
		}
	case n.kind == noteServer && len(fds) <= 1:
		p.reply(n, fds)
	default:
		closeAll(fds)
	}
}

// resume takes an established connection over from an earlier process.
func (p *brokerProcess) resume(n note, relay, socket int) {
	r, relayErr := socketOf(relay)
	s, socketErr := socketOf(socket)
	switch {
	case relayErr == nil && socketErr == nil:
		go (&relayed{process: p, number: n.client, relay: r, socket: s}).run()
	case relayErr == nil:
		_ = r.Close()
	case socketErr == nil:
		go (&relayed{process: p, number: n.client, socket: s}).dispose()
	}
}

func (p *brokerProcess) listen(n note, fd int) {
	file := os.NewFile(uintptr(fd), "memif listener")
	listener, err := net.FileListener(file)
	_ = file.Close()
	if err != nil {
		return
	}
	socket, is := listener.(*net.UnixListener)
	if !is {
		return
	}
	socket.SetUnlinkOnClose(false)
	ctx, stop := context.WithCancel(context.Background())
	d := &acceptor{
		process: p,
		number:  n.listener,
		socket:  socket,
		rate:    rate.NewLimiter(acceptRate, acceptBurst),
		stop:    stop,
		ended:   make(chan struct{}),
		most:    max(int(n.pending), 1),
		spliced: map[*splicedClient]bool{},
	}
	if n.kind == noteListenSplice {
		d.messages = &passing{ctx, rate.NewLimiter(passRate, passBurst)}
	}
	d.changed.L = &d.mu
	p.listeners[n.listener] = d
	go d.accept(ctx)
}

func (p *brokerProcess) nextClient() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	return uint64(os.Getpid())<<32 | p.last
}

// accept takes clients while there is room; others wait in the kernel's backlog.
func (d *acceptor) accept(ctx context.Context) {
	defer close(d.ended)
	for d.rate.Wait(ctx) == nil && d.await() {
		socket, err := d.socket.AcceptUnix()
		if err == nil {
			go d.serve(&packetSocket{UnixConn: socket})
			continue
		}
		d.add(-1)
		if !d.isClosing() {
			<-time.After(10 * time.Millisecond) // no descriptors left, most likely
		}
	}
}

// serve makes a relay for a client and tells the Broker.
func (d *acceptor) serve(socket *packetSocket) {
	c := &relayed{process: d.process, number: d.process.nextClient(), socket: socket, acceptor: d, counted: true}
	if d.messages != nil {
		(&splicedClient{relayed: c}).run()
		return
	}
	relay, other, err := socketPair()
	if err != nil {
		c.dispose()
		return
	}
	c.relay = relay
	raw, err := socket.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) {
			// Without the note the relay has no other end, and run hangs up.
			_ = sendNote(d.process.channel, note{kind: noteClient, listener: d.number, client: c.number}, other,
				int(fd))
		})
	}
	_ = unix.Close(other)
	if err != nil {
		_ = relay.Close()
	}
	c.run()
}

// close refuses new clients and closes those that wait to be accepted: their messages may hold descriptors.
func (d *acceptor) close() {
	raw, err := d.socket.SyscallConn()
	if err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RDWR) })
	}
	d.mu.Lock()
	d.closing = true
	d.changed.Broadcast()
	d.mu.Unlock()
	d.stop()
	_ = d.socket.SetDeadline(time.Unix(1, 0)) // wakes accept
	<-d.ended
	if err == nil {
		_ = raw.Control(func(fd uintptr) {
			for {
				waiting, _, err := unix.Accept4(int(fd), unix.SOCK_CLOEXEC)
				if err != nil {
					return
				}
				go unix.Close(waiting)
			}
		})
	}
	d.part()
	_ = d.socket.Close()
	d.process.tell(note{kind: noteUnlistened, listener: d.number})
}

// relayed is a client's socket, and the relay that brings its messages to the Broker.
type relayed struct {
	process *brokerProcess
	number  uint64
	socket  *packetSocket
	relay   *packetSocket

	acceptor *acceptor // nil: it was accepted by an earlier process, and is not counted
	counted  bool      // pending, or being closed
}

// run relays until both ends have hung up.
func (c *relayed) run() {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.toBroker()
	}()
	c.fromBroker()
	c.count(true)
	_ = c.relay.send(relayGone) // or the Broker would wait for another process
	_ = c.relay.Close()
	c.shutdown()
	<-ended // a descriptor that does not close holds it up, and keeps the client counted
	c.dispose()
}

func (c *relayed) shutdown() {
	_ = c.socket.CloseWrite()
	_ = c.socket.CloseRead()
}

// dispose closes the client's socket once it is empty: the last close of a socket, here or in the Broker, closes the
// descriptors in its messages too.
func (c *relayed) dispose() {
	c.shutdown()
	peer := control{socket: c.socket}
	peer.drain()
	_ = c.socket.Close()
	c.process.tell(note{kind: noteClosed, client: c.number})
	c.count(false)
}

// count sets whether the client is pending or being closed. One goroutine at a time may call it.
func (c *relayed) count(on bool) {
	if c.acceptor == nil || c.counted == on {
		return
	}
	c.counted = on
	if on {
		c.acceptor.add(1)
	} else {
		c.acceptor.add(-1)
	}
}

// toBroker passes on the client's messages. If the Broker does not get one, both ends are hung up on: the client has no
// other reader.
func (c *relayed) toBroker() {
	peer := control{socket: c.socket}
	for {
		m, fd, err := peer.receive()
		switch {
		case isMalformed(err):
			err = c.relay.send(relayMalformed)
		case err != nil:
			_ = c.relay.send(relayGone)
			_ = c.relay.CloseWrite()
			return
		default:
			err = c.process.pass(c.relay, m, fd)
		}
		if err != nil {
			_ = c.relay.CloseRead() // ends fromBroker
			return
		}
	}
}

// pass hands a message over, with its descriptor if that is harmless.
func (p *brokerProcess) pass(to *packetSocket, m *message, fd int) error {
	peer := control{socket: to}
	if fd < 0 {
		return peer.send(m, -1)
	}
	given := p.null
	if _, memory := sealsOf(fd); memory || isEventfd(fd) {
		given = fd
	}
	err := peer.send(m, given)
	_ = unix.Close(fd) // may block, but only this thread
	return err
}

// fromBroker passes on the Broker's answers, until the Broker or the client hangs up.
func (c *relayed) fromBroker() {
	buf := make([]byte, messageSize+1)
	peer := control{socket: c.socket}
	for reset := false; ; {
		n, err := c.relay.Read(buf)
		switch {
		case errors.Is(err, unix.ECONNRESET) && !reset:
			reset = true // the Broker hung up on messages that it had not read; its last one comes behind the error
		case err != nil:
			return
		case n == len(relayEstablished):
			c.count(false)
		case n == messageSize:
			if peer.send((*message)(buf), -1) != nil {
				return
			}
		}
	}
}
