package port

import (
	"fmt"

	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/vswitch/frame"
)

// MemifConfig configures a memif. Its clients provide the memory, and choose queues, ring sizes and buffer sizes within
// these limits.
type MemifConfig struct {
	Socket string       // path of the unix socket, which memifs may share
	ID     uint32       // of the memif on its socket
	Secret memif.Secret // empty: no authentication
	Bare   bool         // mode IP: packets have no Ethernet headers in the rings
	Name   string       // of the interface, shown to the client

	RxQueues, TxQueues int // at most; 0: 255
	RingSize           int // at most, a power of two; 0: 16384
}

// MemifPeer describes a connected client. Directions are those of the dataplane.
type MemifPeer struct {
	Name, Interface    string // of the client
	RxQueues, TxQueues int
	RingSize           int  // of the largest ring
	Regions            int  // shared memory regions
	Guarded            bool // its memory cannot be sealed; access is slower
}

// memifBurst is the number of packets taken from a ring at a time.
const memifBurst = 64

// Memif is a connection to a memif client, which owns the memory with the rings. One goroutine receives, any goroutine
// may transmit, and Close must come last. After the client disconnects nothing is received, and transmitted frames are
// refused.
type Memif struct {
	conn      *memif.Conn
	waiter    *memif.Waiter
	skip      int // length of the header that the client does not see
	rx        []*memif.RxQueue
	nextQueue int // next queue to receive from
	batch     [memifBurst]memif.Packet
	tx        []memifOutput
	borrowed  bool   // buffers may borrow the client's memory
	lost      uint64 // faults reported so far
	polled    bool   // since the last call of Faults

	tooLong uint64 // packets that exceeded a buffer
}

// NewMemif takes over a connection.
func NewMemif(conn *memif.Conn, bare bool) (*Memif, error) {
	waiter, err := memif.NewWaiter()
	if err != nil {
		return nil, fmt.Errorf("open memif: %w", err)
	}
	m := &Memif{conn: conn, waiter: waiter, rx: conn.RxQueues(), tx: newMemifOutputs(conn.TxQueues())}
	if bare {
		m.skip = frame.EthernetLen
	}
	for _, q := range m.rx {
		if err := waiter.Add(q); err != nil {
			_ = waiter.Close()
			return nil, fmt.Errorf("open memif: %w", err)
		}
	}
	return m, nil
}

// Peer describes the client.
func (m *Memif) Peer() *MemifPeer {
	i := m.conn.Info()
	return &MemifPeer{Name: i.Peer, Interface: i.PeerInterface, RxQueues: i.RxQueues, TxQueues: i.TxQueues,
		RingSize: i.RingSize, Regions: i.Regions, Guarded: i.Guarded}
}

// Offload returns none: clients get complete frames only.
func (*Memif) Offload() Offload { return Offload{} }

// Descriptor is readable after an interrupt of the client, if Arm enabled that.
func (m *Memif) Descriptor() int { return m.waiter.FD() }

// Arm enables or disables interrupts by the client; true means that frames wait already.
func (m *Memif) Arm(on bool) bool {
	waiting := false
	for _, q := range m.rx {
		if on {
			waiting = q.Arm() || waiting
		} else {
			q.Disarm()
		}
	}
	if !on {
		m.waiter.Clear()
	}
	return waiting
}

// Receive fills the buffers of v in order and returns their number. It starts with the next queue each time and never
// fails. The buffers borrow the bodies of long frames from the client's memory: all must be transmitted, copied or
// released before the next call of Receive or Done.
func (m *Memif) Receive(v []*frame.Buffer) (int, error) {
	m.Done()
	done := 0
	for range m.rx {
		q := m.rx[m.nextQueue]
		for done < len(v) {
			n := m.receive(q, v[done:])
			done += n
			if n < memifBurst {
				break
			}
		}
		if m.nextQueue++; m.nextQueue == len(m.rx) {
			m.nextQueue = 0
		}
		if done == len(v) {
			break
		}
	}
	return done, nil
}

// Done returns the slots of all received frames to the client.
func (m *Memif) Done() {
	if !m.borrowed {
		return
	}
	m.borrowed = false
	for _, q := range m.rx {
		q.Release()
	}
}

// receive receives up to memifBurst frames from a queue. It returns fewer than the queue had if some were too long.
func (m *Memif) receive(q *memif.RxQueue, v []*frame.Buffer) int {
	if q.Waiting() == 0 {
		return 0
	}
	m.polled = true
	m.borrowed = true
	n := 0
	packets := m.batch[:min(len(v), memifBurst)]
	packets = packets[:q.Peek(packets)]
	for i := range packets {
		if !setFrame(v[n], m.skip, &packets[i]) {
			m.tooLong++
			continue
		}
		if m.skip > 0 {
			putBareHeader(v[n].Head())
		}
		n++
	}
	return n
}

// setFrame makes a packet the frame of a buffer; false if it is too long.
func setFrame(b *frame.Buffer, skip int, p *memif.Packet) bool {
	if len(p.More) == 0 {
		return b.Borrow(skip, p.Data)
	}
	n := p.Len()
	if n > len(b.Room())-skip {
		return false
	}
	b.SetLen(skip + p.CopyTo(b.Room()[skip:][:n]))
	return true
}

// putBareHeader adds an Ethernet header with zero addresses to an IP packet.
func putBareHeader(b []byte) {
	kind := uint16(0)
	switch b[frame.EthernetLen] >> 4 {
	case 4:
		kind = frame.TypeIPv4
	case 6:
		kind = frame.TypeIPv6
	}
	frame.PutEthernet(b, frame.MAC{}, frame.MAC{}, kind)
}

// Faults returns the number of invalid packets since the last call: descriptors outside of the memory and packets that
// are too long. Only the receiver calls it.
func (m *Memif) Faults() uint64 {
	if !m.polled {
		return 0
	}
	m.polled = false
	sum := m.tooLong
	for _, q := range m.rx {
		sum += q.Stats().Dropped()
	}
	n := sum - m.lost
	m.lost = sum
	return n
}

// Close releases the client's memory, and closes the connection if it still exists.
func (m *Memif) Close() error {
	err := m.unwatch()
	m.conn.Release()
	return err
}

func (m *Memif) unwatch() error {
	for _, q := range m.rx {
		m.waiter.Remove(q)
	}
	return m.waiter.Close()
}

// Pass describes the suspended connection for another process, with its descriptors; nil: it has ended. The port is not
// used any more.
func (m *Memif) Pass() (*memif.Passed, []int) { return m.conn.Pass() }

// Release leaves the connection to another process.
func (m *Memif) Release() error {
	err := m.unwatch()
	m.conn.Leave()
	return err
}
