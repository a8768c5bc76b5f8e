package forward

import (
	"net/netip"
	"sync/atomic"

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

// envelopes is a socket of the kernel's that carries tunnels: what it receives begins with a VXLAN header, what it is to
// send with the IP header of an envelope, of which the kernel makes one of its own.
type envelopes interface {
	// Sender returns who sent what the last Receive put into buffer i, and the length of each datagram in it but the
	// last.
	Sender(i int) (from netip.Addr, size int)
	// Local returns the address and port that it is bound to.
	Local() netip.AddrPort
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
	index   uint32 // of its interface; of a socket firstSocket and more
	port    vectorPort
	takes   port.Offload // the port's, at hand
	shared  sharer       // the port, or nil
	socket  envelopes    // the port, or nil
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
	trace  tracer
}

// newAttachment spreads the queues over the workers, beginning with another one for each port.
func newAttachment(index uint32, p vectorPort, e *Engine) *attachment {
	a := &attachment{index: index, port: p, takes: p.Takes(), keeper: e.keeper, queues: make([]queue, len(e.workers))}
	a.shared, _ = p.(sharer)
	a.socket, _ = p.(envelopes)
	for n, r := range receiversOf(p) {
		a.inlets = append(a.inlets, &inlet{receiver: r, of: a, owner: e.workers[(int(index)+n)%len(e.workers)]})
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

// firstSocket is the port index of the first socket: sockets belong to no single interface.
const firstSocket = MaxInterfaces

// portTable is what workers see: attachments by port index. Never changed once it is published.
type portTable struct {
	interfaces []*attachment // by interface index
	sockets    []*attachment // by port index less firstSocket
}

func (t portTable) at(index uint32) *attachment {
	if int(index) < len(t.interfaces) {
		return t.interfaces[index]
	}
	if n := int(index) - firstSocket; n >= 0 && n < len(t.sockets) {
		return t.sockets[n]
	}
	return nil
}

// with returns a copy of the table that has a at index; nil removes.
func (t portTable) with(index uint32, a *attachment) portTable {
	if index >= firstSocket {
		t.sockets = replaced(t.sockets, int(index-firstSocket), a)
	} else {
		t.interfaces = replaced(t.interfaces, int(index), a)
	}
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
