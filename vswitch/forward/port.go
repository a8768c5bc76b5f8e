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

// receiver is used by one worker.
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

// attachment is a port at work for an interface.
type attachment struct {
	index   uint32
	port    vectorPort
	takes   port.Offload // the port's, at hand
	owner   *worker      // who receives
	failure atomic.Pointer[portFailure]
	queues  []queue // by worker: frames to transmit at the end of its vector
	active  bool    // the owner's: on its list of ports to receive from
	trace   tracer  // the owner's
}

// portFailure is why a port broke.
type portFailure struct{ err error }

// queue collects frames for one port during a vector.
type queue struct {
	frames [frame.VectorSize]*frame.Buffer
	n      int
}

// portTable is what workers see: attachments by interface index. Never changed once it is published.
type portTable []*attachment

func (t portTable) at(index uint32) *attachment {
	if int(index) >= len(t) {
		return nil
	}
	return t[index]
}

// with returns a copy of the table that has a at index; nil removes.
func (t portTable) with(index uint32, a *attachment) portTable {
	next := make(portTable, max(len(t), int(index)+1))
	copy(next, t)
	next[index] = a
	return next
}

// fail takes the port out of use, by whichever worker met the error first; the keeper does the rest.
func (a *attachment) fail(err error) {
	if a.failure.CompareAndSwap(nil, &portFailure{err}) {
		a.owner.engine.keeper.bell.Ring()
	}
}
