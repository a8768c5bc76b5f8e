package port

import (
	"sync"

	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/vswitch/frame"
)

// memifOutput is a queue to the client. It belongs to the holder of its lock, as any worker may transmit: taken once a
// vector, and by one worker only where there is but one, it costs a few nanoseconds. The rings of a client are as many as
// the client likes, so that a queue for each worker cannot be had.
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

// Transmit copies v's frames into the client's rings and returns how many found room. One that did not is left empty.
// Frames of a flow go the same way, in order. It never errs.
func (m *Memif) Transmit(v []*frame.Buffer) (int, error) {
	switch len(m.tx) {
	case 0:
		for _, b := range v {
			b.SetLen(0)
		}
		return 0, nil
	case 1:
		return m.tx[0].transmit(v, m.bare), nil
	}
	return m.spread(v), nil
}

// spread sends each frame by the queue that its flow's hash names.
func (m *Memif) spread(v []*frame.Buffer) int {
	sent := 0
	for i := range m.tx {
		m.tx[i].mu.Lock()
	}
	for _, b := range v {
		o := &m.tx[flowOf(b.Bytes())%uint32(len(m.tx))]
		sent += o.append(b, m.bare)
	}
	for i := range m.tx {
		m.tx[i].queue.Flush()
		m.tx[i].mu.Unlock()
	}
	return sent
}

func (o *memifOutput) transmit(v []*frame.Buffer, bare bool) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	skip := headerOf(bare)
	sent := 0
	for _, b := range v {
		head, body := b.Parts()
		if !o.queue.AppendParts(head[min(skip, len(head)):], body) {
			b.SetLen(0)
			continue
		}
		sent++
	}
	o.queue.Flush()
	return sent
}

// append copies one frame; 0: there was no room.
func (o *memifOutput) append(b *frame.Buffer, bare bool) int {
	head, body := b.Parts()
	if o.queue.AppendParts(head[min(headerOf(bare), len(head)):], body) {
		return 1
	}
	b.SetLen(0)
	return 0
}

// headerOf is the length of the header that a client does not see.
func headerOf(bare bool) int {
	if bare {
		return frame.EthernetLen
	}
	return 0
}

// flowOf is the hash of a frame's flow; what is too short for a frame has none.
func flowOf(b []byte) uint32 {
	if len(b) < frame.EthernetLen {
		return 0
	}
	return frame.Ethernet(b).Hash()
}
