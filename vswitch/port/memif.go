package port

import (
	"fmt"

	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/vswitch/frame"
)

// memifBurst is how many frames are copied between two looks at a ring.
const memifBurst = 64

// Memif is a connection to a memif's client: the memory is the client's, and so are the rings in it. One goroutine receives;
// any may transmit; Close is for when none does any more. When the client goes it is as if its rings were empty, and full.
type Memif struct {
	conn   *memif.Conn
	waiter *memif.Waiter
	bare   bool
	rx     []*memif.RxQueue
	turn   int // of the queues to receive from
	batch  [memifBurst][]byte
	tx     []memifOutput
	lost   uint64 // frames that came wrong, of those told by Faults
	looked bool   // at frames, since Faults was asked last
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
func (m *Memif) Receive(v []*frame.Buffer) (int, error) {
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

// receive takes up to memifBurst frames from one queue.
func (m *Memif) receive(q *memif.RxQueue, v []*frame.Buffer) int {
	v = v[:min(len(v), memifBurst, q.Waiting())]
	if len(v) == 0 {
		return 0
	}
	m.looked = true
	head := 0
	if m.bare {
		head = frame.EthernetLen
	}
	for i, b := range v {
		m.batch[i] = b.Room()[head:]
	}
	n := q.Receive(m.batch[:len(v)])
	for i, b := range v[:n] {
		b.SetLen(head + len(m.batch[i]))
		if m.bare {
			putBareHeader(b.Bytes())
		}
	}
	return n
}

// putBareHeader makes a frame of an IP packet: to nobody, from nobody, of the type that its version says.
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
	var sum uint64
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
