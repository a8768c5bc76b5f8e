package forward

import (
	"sync/atomic"

	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/port"
)

// vectorPort is a port: a tap, an AF_PACKET socket or a memif.
type vectorPort interface {
	receiver
	transmitter
	// Close is called when no worker uses the port any more.
	Close() error
}

// receiver is a receive queue of a port, which one worker uses.
type receiver interface {
	// Receive fills buffers in order and returns their number; a number below len means that no more frames wait. An
	// error means that the port failed.
	Receive([]*frame.Buffer) (int, error)
	// Descriptor returns a descriptor that is readable when frames wait.
	Descriptor() int
	// Arm enables or disables interrupts on Descriptor. It returns true if frames wait already.
	Arm(on bool) bool
}

// transmitter is the transmit side of a port, which any worker uses.
type transmitter interface {
	// Transmit sends frames and returns how many it accepted; it empties a refused frame. The caller keeps the buffers.
	// An error means that the port failed.
	Transmit([]*frame.Buffer) (int, error)
	// Takes returns the offloads that the port supports; they never change.
	Offload() port.Offload
}

// sharedMemory is a port with rings in memory shared with a peer. Workers poll it for a while before they enable its
// interrupts, as polling it is cheap.
type sharedMemory interface {
	// Faults returns the number of invalid descriptors since the last call. Only the receiver calls it.
	Faults() uint64
	// Done returns the buffers of the last Receive to the peer: they may borrow its memory.
	Done()
}

// packetSocket is a port with a queue in the kernel, which drops frames that it cannot pass to the dataplane.
type packetSocket interface {
	// Inexpressible returns the number of these frames since the last call. Only the receiver calls it.
	Inexpressible() uint64
}

// attachedPort is a port attached to an interface.
type attachedPort struct {
	index      uint32 // of the interface
	port       vectorPort
	offload    port.Offload // of the port
	shared     sharedMemory // the port if it has shared memory, or nil
	socket     packetSocket // the port if it is one, or nil
	rxQueues   []*rxQueue   // at least one
	supervisor *supervisor
	failure    atomic.Pointer[portFailure]
	txQueues   []txQueue // by worker
}

// newAttachedPort spreads the queues over the workers. The index of the port selects the first worker.
func newAttachedPort(index uint32, p vectorPort, e *Engine) *attachedPort {
	a := &attachedPort{
		index:      index,
		port:       p,
		offload:    p.Offload(),
		supervisor: e.supervisor,
		txQueues:   make([]txQueue, len(e.workers)),
	}
	a.shared, _ = p.(sharedMemory)
	a.socket, _ = p.(packetSocket)
	for n, r := range receiversOf(p) {
		a.rxQueues = append(a.rxQueues, &rxQueue{
			receiver: r,
			port:     a,
			owner:    e.workers[(int(index)+n)%len(e.workers)],
			burst:    1,
		})
	}
	return a
}

func receiversOf(p vectorPort) []receiver {
	all := []receiver{p}
	if tap, is := p.(*port.Tap); is {
		for _, q := range tap.ExtraQueues() {
			all = append(all, q)
		}
	}
	return all
}

// portFailure is the error of a failed port.
type portFailure struct{ err error }

// txQueue collects the frames to a port during a vector.
type txQueue struct {
	frames [frame.VectorSize]*frame.Buffer
	n      int
}

// portTable is the table of attached ports. It is immutable once published.
type portTable struct {
	interfaces []*attachedPort // by index
}

func (t portTable) at(index uint32) *attachedPort {
	if int(index) < len(t.interfaces) {
		return t.interfaces[index]
	}
	return nil
}

// with returns a copy of the table with a at an index; nil removes the port there.
func (t portTable) with(index uint32, a *attachedPort) portTable {
	next := make([]*attachedPort, max(len(t.interfaces), int(index)+1))
	copy(next, t.interfaces)
	next[index] = a
	return portTable{next}
}

// fail takes a failed port out of use. The first error counts, and the supervisor does the rest.
func (a *attachedPort) fail(err error) {
	a.unwatch()
	if a.failure.CompareAndSwap(nil, &portFailure{err}) {
		a.supervisor.bell.Ring()
	}
}

// unwatch removes the receive queues from epoll.
func (a *attachedPort) unwatch() {
	for _, i := range a.rxQueues {
		i.owner.rx.poll.remove(i.Descriptor())
	}
}

// hostPorts opens and closes the ports of interfaces, and passes them to another process.
type hostPorts struct {
	*published
	supervisor *supervisor
	memifs     *memifs
	handOver   func(open func() OpenPorts) bool
}

// OpenTap creates a tap as the port of an interface. Its frames are dropped until SetInterface and Publish, which may
// come before or after. Errors are port.ErrNameInUse, port.ErrNamespaceGone, ErrPortExists and system errors; an error
// leaves nothing behind.
func (h *hostPorts) OpenTap(index uint32, c port.TapConfig) (port.TapInfo, error) {
	var info port.TapInfo
	err := h.supervisor.add(index, func() (vectorPort, error) {
		t, err := port.OpenTap(c)
		if err != nil {
			return nil, err
		}
		info = t.Info()
		return t, nil
	})
	return info, err
}

// ClosePort closes the interface's port or memif, after it forwarded the frames that wait there. It returns ErrNoPort
// if the interface has no port. No worker uses the port after it returns. Run must be running or have ended.
func (h *hostPorts) ClosePort(index uint32) error {
	h.drain(index)
	if served, err := h.memifs.close(index); served {
		return err
	}
	return h.supervisor.remove(index)
}

// OpenAFPacket attaches an interface to a network link, which stays when the port is closed. If the link goes down or
// is deleted, the port fails and is opened again when the link is up; c.SetUp applies to the first open only. Errors
// are port.ErrNoLink, port.ErrLinkDown, ErrPortExists and system errors; an error leaves nothing behind.
func (h *hostPorts) OpenAFPacket(index uint32, c port.AFPacketConfig) (port.AFPacketInfo, error) {
	var info port.AFPacketInfo
	err := h.supervisor.add(index, func() (vectorPort, error) {
		p, err := port.OpenAFPacket(c)
		if err != nil {
			return nil, err
		}
		info = p.Info()
		c.SetUp = false
		return p, nil
	})
	return info, err
}
