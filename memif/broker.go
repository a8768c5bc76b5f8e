package memif

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Broker is a child process that holds the control sockets of clients for the listeners of this process. A client may
// pass any descriptor. The last close of one can take as long as the client likes: it may be a TCP socket that lingers,
// or a file of the client's own FUSE file system; and the kernel closes unread descriptors in whichever thread closes
// the socket. So this process only holds descriptors of clients that the broker process has found to be shared memory
// or eventfds, and never closes a socket that may have unread messages:
//
//	client <--socket--> broker process <--relay, one a client--> Listener, Conn
//
// The broker process may be killed at any time. Established connections go on: a duplicate of each socket is kept here,
// which the next process gets. Clients that were not connected yet are hung up on.
type Broker struct {
	args   []string
	log    *slog.Logger
	cancel context.CancelFunc
	done   chan struct{}

	yielded chan struct{} // closed by yield
	once    sync.Once

	mu        sync.Mutex
	child     *brokerChild // nil while no process runs
	last      uint32
	listeners map[uint32]*brokeredListener
	clients   map[uint64]*brokeredClient
}

// brokerChild is the process that a Broker runs now.
type brokerChild struct {
	process *os.Process
	channel *packetSocket
	reaped  chan struct{} // closed when the process has ended
}

// brokeredListener is a listening socket of the broker process.
type brokeredListener struct {
	socket  *net.UnixListener
	pending int
	serve   func(*control) // serves a client; nil: splice has the clients
	splice  *Splice
	closing bool // the process closes it first
}

// brokeredClient is a client's socket, until the process has closed it.
type brokeredClient struct {
	broker      *Broker
	number      uint64
	socket      int // the duplicate of this process
	established bool
	ended       time.Time
	relays      chan *packetSocket // by later processes; closed with the client's end
	stop        chan struct{}      // closed by control.interrupt
}

const (
	brokerChannel = 3 // descriptor of the process

	// restartPause is the time between two starts of the process.
	restartPause = 100 * time.Millisecond

	// A process with so many clients that block its close for so long is replaced, which ends the blocked threads.
	maxStuck   = 512
	stuckAfter = time.Minute
)

// brokerVariable marks a broker process: a program that does not call ServeBroker would start itself forever.
const brokerVariable = "WEFT_MEMIF_BROKER"

// StartBroker starts this program with the given arguments, with which its main function has to call ServeBroker, and
// again whenever that process ends, until Close. If this process is root's and may change users, the other one has an
// unprivileged user.
func StartBroker(log *slog.Logger, args ...string) (*Broker, error) {
	if os.Getenv(brokerVariable) != "" {
		return nil, errors.New("start memif broker: this is a broker process, which did not call ServeBroker")
	}
	ctx, cancel := context.WithCancel(context.Background())
	b := &Broker{args: args, log: log, cancel: cancel, done: make(chan struct{}), yielded: make(chan struct{}),
		listeners: map[uint32]*brokeredListener{}, clients: map[uint64]*brokeredClient{}}
	process, channel, err := b.start()
	if err != nil {
		cancel()
		return nil, fmt.Errorf("start memif broker: %w", err)
	}
	go b.run(ctx, process, channel)
	return b, nil
}

// PID returns the pid of the broker process, 0 while it does not run.
func (b *Broker) PID() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.child == nil {
		return 0
	}
	return b.child.process.Pid
}

// Close ends the process. Close its listeners first.
func (b *Broker) Close() {
	b.cancel()
	<-b.done
}

// start starts a process.
func (b *Broker) start() (*exec.Cmd, *packetSocket, error) {
	channel, other, err := socketPair()
	if err != nil {
		return nil, nil, err
	}
	file := os.NewFile(uintptr(other), "memif broker")
	defer file.Close()
	var failed []error
	for _, attributes := range []*syscall.SysProcAttr{asUnprivileged(), {}} {
		if attributes == nil {
			continue
		}
		process := exec.Command("/proc/self/exe", b.args...) //nolint:noctx // it ends with its channel
		process.Args[0] = os.Args[0]
		process.ExtraFiles = []*os.File{file}
		process.Stderr = os.Stderr
		process.SysProcAttr = attributes
		process.Env = []string{"GOMAXPROCS=2", brokerVariable + "=1"}
		if err = process.Start(); err == nil {
			return process, channel, nil
		}
		failed = append(failed, err)
	}
	return nil, nil, errors.Join(append(failed, channel.Close())...)
}

// unprivilegedUsers are the users of such processes, and their groups: one of 2^30 that no other process is likely to
// have. The kernel counts the descriptors on their way through sockets by user, and refuses more (ETOOMANYREFS): a
// container with the same user could use them up.
const unprivilegedUsers = 1 << 30

func asUnprivileged() *syscall.SysProcAttr {
	if os.Geteuid() != 0 {
		return nil
	}
	var random [4]byte
	_, _ = rand.Read(random[:]) // never fails
	user := unprivilegedUsers + binary.NativeEndian.Uint32(random[:])%unprivilegedUsers
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
}

// run serves a process until it ends, then starts another one.
func (b *Broker) run(ctx context.Context, process *exec.Cmd, channel *packetSocket) {
	defer close(b.done)
	for failing := false; ; {
		if process != nil {
			b.serve(ctx, process, channel)
		}
		select {
		case <-b.yielded:
			<-ctx.Done()
		case <-ctx.Done():
		case <-time.After(restartPause):
		}
		if ctx.Err() != nil {
			b.forget()
			return
		}
		var err error
		if process, channel, err = b.start(); err != nil && !failing {
			b.log.Error("memif broker not started, retrying: memif clients cannot connect", "err", err)
		}
		failing = err != nil
	}
}

// serve handles the notes of a process until it ends.
func (b *Broker) serve(ctx context.Context, process *exec.Cmd, channel *packetSocket) {
	stop := context.AfterFunc(ctx, func() { _ = channel.CloseWrite(); _ = channel.CloseRead() })
	defer stop()
	reaped := make(chan struct{})
	b.adopt(&brokerChild{process.Process, channel, reaped})
	for {
		n, fds, err := receiveNote(channel)
		if err != nil {
			break
		}
		b.handle(n, fds)
		if b.isStuck() {
			b.log.Warn("memif broker replaced: too many descriptors of clients do not close",
				"pid", process.Process.Pid)
			break
		}
	}
	b.mu.Lock()
	b.child = nil
	for _, d := range b.listeners {
		if d.splice != nil {
			d.splice.parted()
		}
	}
	b.mu.Unlock()
	if ctx.Err() == nil {
		// before it sees the end of the channel and closes the sockets that the next process gets
		_ = process.Process.Kill()
	}
	_ = channel.Close()
	go func() {
		err := process.Wait() // a thread that cannot be killed keeps it
		close(reaped)
		if ctx.Err() == nil && !b.hasYielded() {
			b.log.Warn("memif broker ended", "pid", process.Process.Pid, "err", err)
		}
	}()
	if ctx.Err() != nil { // it closes its sockets
		select {
		case <-reaped:
		case <-time.After(yieldTimeout):
		}
	}
	_ = process.Process.Kill()
}

// adopt makes child the current one and sends it all sockets.
func (b *Broker) adopt(child *brokerChild) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.hasYielded() {
		_ = child.process.Kill()
		return
	}
	b.child = child
	for number, d := range b.listeners {
		b.open(number, d)
		if d.closing {
			b.tell(note{kind: noteUnlisten, listener: number})
		}
	}
	for _, c := range b.clients {
		if c.ended.IsZero() && c.established && b.resume(c) {
			continue
		}
		c.endLocked()
		b.tell(note{kind: noteDispose, client: c.number}, c.socket)
	}
}

// yieldTimeout bounds the wait for the end of the process: its threads may be blocked in the kernel.
const yieldTimeout = 100 * time.Millisecond

// yield ends the process before a handover, and starts none again: another Broker serves the sockets then. Established
// clients do not notice, and those that are not connected yet are hung up on. After it, the end of a client is a
// hang-up without a reason.
func (b *Broker) yield() {
	b.once.Do(func() {
		close(b.yielded)
		b.mu.Lock()
		child := b.child
		b.mu.Unlock()
		if child == nil {
			return
		}
		_ = child.process.Kill() // and not its channel closed: it would shut the clients' sockets down
		select {
		case <-child.reaped:
		case <-time.After(yieldTimeout):
		}
	})
}

func (b *Broker) hasYielded() bool {
	select {
	case <-b.yielded:
		return true
	default:
		return false
	}
}

// take takes over the socket of a client that is connected to another Broker. Nothing is read from it before join.
func (b *Broker) take(socket int) (c *control, relay int, err error) {
	own, relay, err := socketPair()
	if err != nil {
		_ = unix.Close(socket)
		return nil, -1, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last++
	// The process numbers its clients from its pid on, in the upper half.
	client := &brokeredClient{broker: b, number: uint64(b.last), socket: socket, established: true,
		relays: make(chan *packetSocket, 1), stop: make(chan struct{})}
	return &control{socket: own, client: client}, relay, nil
}

// join lets the process read from the socket of a client that was taken over.
func (c *brokeredClient) join(relay int) {
	c.broker.mu.Lock()
	defer c.broker.mu.Unlock()
	c.broker.clients[c.number] = c
	c.broker.tell(note{kind: noteResume, client: c.number}, relay, c.socket)
	_ = unix.Close(relay) // without a process the next one resumes the connection
}

// resume gives the process an established connection; false: the connection has to end.
func (b *Broker) resume(c *brokeredClient) bool {
	own, other, err := socketPair()
	if err != nil {
		b.log.Error("memif connection ends: no control socket", "err", err)
		return false
	}
	b.tell(note{kind: noteResume, client: c.number}, other, c.socket)
	_ = unix.Close(other)
	c.dropRelay()
	c.relays <- own
	return true
}

// tell sends a note with b.mu held. A process that does not read is replaced, and its successor told everything.
func (b *Broker) tell(n note, fds ...int) {
	if b.child == nil {
		return
	}
	if err := sendNote(b.child.channel, n, fds...); err != nil {
		b.log.Warn("memif broker does not read", "err", err)
		_ = b.child.process.Kill()
	}
}

func (b *Broker) open(number uint32, d *brokeredListener) {
	raw, err := d.socket.SyscallConn()
	if err != nil {
		return
	}
	kind := noteListen
	if d.splice != nil {
		kind = noteListenSplice
	}
	_ = raw.Control(func(fd uintptr) {
		b.tell(note{kind: kind, listener: number, pending: uint32(d.pending)}, int(fd))
	})
}

// listen makes the process accept the clients of a socket.
func (b *Broker) listen(d *brokeredListener) (number uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last++
	b.listeners[b.last] = d
	b.open(b.last, d)
	return b.last
}

// unlisten makes the process close a listener's socket.
func (b *Broker) unlisten(number uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.listeners[number] == nil {
		return
	}
	b.listeners[number].closing = true
	b.tell(note{kind: noteUnlisten, listener: number})
}

func (b *Broker) handle(n note, fds []int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case n.kind == noteClient && len(fds) == 2 && b.clients[n.client] == nil:
		b.handOver(n, fds[0], fds[1])
	case n.kind == noteClosed && b.clients[n.client] != nil:
		b.clients[n.client].endLocked()
		_ = unix.Close(b.clients[n.client].socket)
		delete(b.clients, n.client)
	case n.kind == noteUnlistened && b.listeners[n.listener] != nil:
		_ = b.listeners[n.listener].socket.Close()
		delete(b.listeners, n.listener)
	case b.listeners[n.listener] != nil && b.listeners[n.listener].splice != nil:
		closeAll(fds)
		b.listeners[n.listener].splice.handle(n)
	default:
		closeAll(fds)
	}
}

// welcome hands a client to its listener.
func (b *Broker) handOver(n note, relay, socket int) {
	c := &brokeredClient{
		broker: b,
		number: n.client,
		socket: socket,
		relays: make(chan *packetSocket, 1),
		stop:   make(chan struct{}),
	}
	b.clients[n.client] = c
	own, err := socketOf(relay)
	d := b.listeners[n.listener]
	switch {
	case err != nil:
		c.endLocked()
	case d == nil || d.closing || d.serve == nil:
		c.endLocked()
		_ = own.Close()
	default:
		go d.serve(&control{socket: own, client: c})
	}
}

// isStuck reports whether too many clients were not closed in time.
func (b *Broker) isStuck() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	stuck := 0
	for _, c := range b.clients {
		if !c.ended.IsZero() && time.Since(c.ended) > stuckAfter {
			stuck++
		}
	}
	return stuck >= maxStuck
}

// forget closes the remaining sockets when the Broker is closed.
func (b *Broker) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.clients {
		_ = unix.Close(c.socket)
	}
	for _, d := range b.listeners {
		_ = d.socket.Close()
	}
	clear(b.clients)
	clear(b.listeners)
}

// dropRelay closes a relay that was not taken: the process waits for its other end.
func (c *brokeredClient) dropRelay() {
	select {
	case relay, open := <-c.relays:
		if open {
			_ = relay.Close()
		}
	default:
	}
}

// endLocked begins the end of the client, once. It gets no more relays.
func (c *brokeredClient) endLocked() {
	if !c.ended.IsZero() {
		return
	}
	c.ended = time.Now()
	if c.broker.hasYielded() {
		_ = unix.Shutdown(c.socket, unix.SHUT_RDWR)
	}
	c.dropRelay()
	close(c.relays)
}

// establish marks the client as no longer pending.
func (c *brokeredClient) establish() {
	c.broker.mu.Lock()
	defer c.broker.mu.Unlock()
	c.established = true
}

// end marks the client as ended.
func (c *brokeredClient) end() {
	c.broker.mu.Lock()
	defer c.broker.mu.Unlock()
	c.endLocked()
}

// use calls f with the socket, unless that is closed.
func (c *brokeredClient) use(f func(fd int)) {
	c.broker.mu.Lock()
	defer c.broker.mu.Unlock()
	if c.broker.clients[c.number] == c {
		f(c.socket)
	}
}
