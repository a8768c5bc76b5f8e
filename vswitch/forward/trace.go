package forward

import "github.com/weftnet/weft/vswitch/frame"

// traceDepth is the number of frames remembered for each queue.
const traceDepth = 64

// tracer remembers the last frames that a queue received. Only the queue's owner touches it.
type tracer struct {
	lines [traceDepth]traceLine
	next  uint64
}

// traceBytes are remembered of a frame: Ethernet, IPv6, TCP and some of its options.
const traceBytes = 88

// traceLine is a frame as it came in, and what was decided on it. It fills two cache lines.
type traceLine struct {
	head   [traceBytes]byte
	length uint32
	kept   uint8
	how    manner
	virtio frame.Virtio
	result verdict
}

func (t *tracer) begin(b *frame.Buffer) *traceLine {
	l := &t.lines[t.next%traceDepth]
	t.next++
	l.length, l.virtio = uint32(b.Len()), b.Virtio
	l.kept = uint8(b.CopyHead(l.head[:]))
	return l
}

// last copies the newest n lines, oldest first.
func (t *tracer) last(n int) []traceLine {
	n = int(min(uint64(max(n, 0)), t.next, traceDepth))
	out := make([]traceLine, 0, n)
	for at := t.next - uint64(n); at < t.next; at++ {
		out = append(out, t.lines[at%traceDepth])
	}
	return out
}

// Trace returns the last frames received on an interface's port, oldest first, at most n and at most 64 of them, a line
// each: what it was, and what became of it. Of a port with several queues they are so of each, one queue after the other.
// Nothing where there is no port.
func (e *Engine) Trace(index uint32, n int) []string {
	a := e.ports.Load().at(index)
	if a == nil {
		return nil
	}
	var lines []traceLine
	for _, i := range a.inlets {
		if !i.owner.post(func(*worker) { lines = append(lines, i.trace.last(n)...) }) {
			return nil
		}
	}
	out := make([]string, len(lines))
	for i := range lines {
		out[i] = lines[i].String()
	}
	return out
}
