package forward

import (
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
