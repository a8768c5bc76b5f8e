package forward

import (
	"testing"
	"time"

	"github.com/weftnet/weft/vswitch/frame"
)

func TestSingleFramesReuseOneBuffer(t *testing.T) {
	b := newBench(t)
	raw := udp4("10.2.0.9", 100)
	memory := map[*byte]bool{}
	b.out.show = func(f []byte, _ frame.Virtio) { memory[&f[0]] = true }
	for range 3 * frame.VectorSize {
		b.run(raw, frame.Virtio{}, 1)
	}
	if b.out.sent != 3*frame.VectorSize || len(memory) != 1 {
		t.Errorf("%d frames went through %d buffers, want %d through 1", b.out.sent, len(memory), 3*frame.VectorSize)
	}
}

func TestWorkerContinuesAfterItsPoolWasEmpty(t *testing.T) {
	b := newBench(t)
	b.worker.stopwatch = func() time.Duration { return 0 } // turns are never shortened
	raw := udp4("10.2.0.9", 100)
	b.run(raw, frame.Virtio{}, 1)
	taken := make([]*frame.Buffer, poolSize)
	taken = taken[:b.worker.tx.pool.Take(taken)]
	b.worker.buffers.empty = b.worker.buffers.empty[:2]
	b.in.waiting = 5
	b.out.sent = 0
	if n, _ := b.worker.receive(b.worker.ports.at(1).rxQueues[0]); n != 2 {
		t.Errorf("with two buffers %d frames were received", n)
	}
	for _, buffer := range taken {
		buffer.Release()
	}
	if n, _ := b.worker.receive(b.worker.ports.at(1).rxQueues[0]); n != 3 || b.out.sent != 5 {
		t.Errorf("then %d frames were received, and %d sent in total, want 3 and 5", n, b.out.sent)
	}
}
