package port

import (
	"fmt"

	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/vswitch/frame"
)

// memifBurst is the number of packets taken from a ring at a time.
const memifBurst = 64

// Memif is a connection to a memif's client: the memory is the client's, and so are the rings in it. One goroutine receives;
// any may transmit; Close is for when none does any more. When the client goes it is as if its rings were empty, and full.
type Memif struct {
	conn   *memif.Conn
	waiter *memif.Waiter
	bare   bool
	rx     []*memif.RxQueue
	turn   int // of the queues to receive from
	batch  [memifBurst]memif.Packet
	tx     []memifOutput
	lent   bool   // buffers may hold bodies of frames in the client's memory
	lost   uint64 // frames that came wrong, of those told by Faults
	looked bool   // at frames, since Faults was asked last

	tooLong uint64 // packets that exceeded a buffer
}

// NewMemif takes over a connection.
func NewMemif(conn *memif.Conn, bare bool) (*Memif, error) {
	waiter, err := memif.NewWaiter()
	if err != nil {
		return nil, fmt.Errorf("open memif: %w", err)
	}
	m := &Memif{conn: conn, waiter: waiter, bare: bare, rx: conn.RxQueues(), tx: newMemifOutputs(conn.TxQueues())}
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

// Takes says that a client gets complete frames only.
func (*Memif) Takes() Offload { return Offload{} }

// Descriptor becomes readable when the client rings for frames, after Arm.
func (m *Memif) Descriptor() int { return m.waiter.FD() }

// Arm asks the client to ring when it has put frames into an empty ring, or not to; true says that frames wait already.
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

// Receive fills v's buffers, in order, as far as there are frames. All queues get their turn to be first. It never errs.
// The buffers borrow the bodies of long frames from the client's memory: all buffers must be transmitted, copied or
// released before the next call of Receive or Done.
func (m *Memif) Receive(v []*frame.Buffer) (int, error) {
	m.Done()
	done := 0
	for range m.rx {
		q := m.rx[m.turn]
		for done < len(v) {
			n := m.receive(q, v[done:])
			done += n
			if n < memifBurst {
				break
			}
		}
		if m.turn++; m.turn == len(m.rx) {
			m.turn = 0
		}
		if done == len(v) {
			break
		}
	}
	return done, nil
}

// Done returns the slots of all received frames to the client.
func (m *Memif) Done() {
	if !m.lent {
		return
	}
	m.lent = false
	for _, q := range m.rx {
		q.Release()
	}
}

// receive takes up to memifBurst frames from one queue. It returns fewer than the queue had if some were too long.
func (m *Memif) receive(q *memif.RxQueue, v []*frame.Buffer) int {
	if q.Waiting() == 0 {
		return 0
	}
	m.looked, m.lent = true, true
	skip, n := headerOf(m.bare), 0
	packets := m.batch[:min(len(v), memifBurst)]
	packets = packets[:q.Peek(packets)]
	for i := range packets {
		if !take(v[n], skip, &packets[i]) {
			m.tooLong++
			continue
		}
		if m.bare {
			putBareHeader(v[n].Head())
		}
		n++
	}
	return n
}

// take makes a packet the frame of a buffer; false: it is too long.
func take(b *frame.Buffer, skip int, p *memif.Packet) bool {
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

// putBareHeader puts an Ethernet header with zero addresses before an IP packet. Its type is that of the IP version.
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

// Faults returns how many packets came that were none, since it was asked last: their descriptors pointed nowhere. The
// receiver asks.
func (m *Memif) Faults() uint64 {
	if !m.looked {
		return 0
	}
	m.looked = false
	sum := m.tooLong
	for _, q := range m.rx {
		sum += q.Stats().Dropped()
	}
	n := sum - m.lost
	m.lost = sum
	return n
}

// Close gives the client's memory up, and ends the connection if that lasts.
func (m *Memif) Close() error {
	for _, q := range m.rx {
		m.waiter.Remove(q)
	}
	err := m.waiter.Close()
	m.conn.Release()
	return err
}
