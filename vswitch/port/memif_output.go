package port

import (
	"sync"

	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/vswitch/frame"
)

// memifOutput is a transmit queue to the client, which any worker may use under the lock. The client chooses the number
// of rings, so there may be fewer queues than workers. An uncontended lock costs a few nanoseconds per vector.
type memifOutput struct {
	mu    sync.Mutex
	queue *memif.TxQueue
}

func newMemifOutputs(queues []*memif.TxQueue) []memifOutput {
	all := make([]memifOutput, len(queues))
	for i, q := range queues {
		all[i].queue = q
	}
	return all
}

// Transmit copies the frames of v into the client's rings and returns how many had room; it empties the others. Frames
// of a flow use one queue, in order. It never fails.
func (m *Memif) Transmit(v []*frame.Buffer) (int, error) {
	switch len(m.tx) {
	case 0:
		for _, b := range v {
			b.SetLen(0)
		}
		return 0, nil
	case 1:
		return m.tx[0].transmit(v, m.skip), nil
	}
	return m.spread(v), nil
}

// spread selects a queue by flow hash for each frame.
func (m *Memif) spread(v []*frame.Buffer) int {
	sent := 0
	for i := range m.tx {
		m.tx[i].mu.Lock()
	}
	for _, b := range v {
		o := &m.tx[flowHash(b.Bytes())%uint32(len(m.tx))]
		sent += o.append(b, m.skip)
	}
	for i := range m.tx {
		m.tx[i].queue.Flush()
		m.tx[i].mu.Unlock()
	}
	return sent
}

func (o *memifOutput) transmit(v []*frame.Buffer, skip int) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	sent := 0
	refused := o.queue.Refused()
	for _, b := range v {
		head, body := b.Parts() // not append, which is not inlined: a nanosecond a frame
		if !o.queue.AppendParts(head[min(skip, len(head)):], body) || o.queue.Refused() != refused {
			b.SetLen(0)
			refused = o.queue.Refused()
			continue
		}
		sent++
	}
	o.queue.Flush()
	return sent
}

// append copies a frame without its first skip bytes and returns 1, or 0 without room, now or ever.
func (o *memifOutput) append(b *frame.Buffer, skip int) int {
	refused := o.queue.Refused()
	head, body := b.Parts()
	if o.queue.AppendParts(head[min(skip, len(head)):], body) && o.queue.Refused() == refused {
		return 1
	}
	b.SetLen(0)
	return 0
}

// flowHash is the hash of a frame's flow; 0 if it is too short.
func flowHash(b []byte) uint32 {
	if len(b) < frame.EthernetLen {
		return 0
	}
	return frame.Ethernet(b).Hash()
}
