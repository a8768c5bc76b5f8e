package memif

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
)

// TestBothRolesAtOnce lets four goroutines use a connection over heap memory, where the race detector sees what they
// share: each of two directions has one who sends and one who receives, with interrupts asked for and not.
func TestBothRolesAtOnce(t *testing.T) {
	for _, bufferSize := range []uint32{64, 2048} {
		t.Run(fmt.Sprintf("buffers of %d", bufferSize), func(t *testing.T) {
			server, client := heapPair(layout{toServer: 1, toClient: 1, log2: 6, bufferSize: bufferSize})
			var running sync.WaitGroup
			for _, w := range ways(server, client) {
				running.Go(func() { sendStream(w.tx) })
				running.Go(func() { receiveStream(t, w) })
			}
			running.Wait()
		})
	}
}

const streamLength = 5000

func streamSize(n int) int { return 1 + n*7%1500 }

func sendStream(q *TxQueue) {
	b := make([]byte, 1500)
	for n := 0; n < streamLength; {
		p := b[:streamSize(n)]
		fillPattern(p, n)
		if !q.Append(p) {
			q.Flush()
			runtime.Gosched()
			continue
		}
		if n++; n%5 == 0 {
			q.Flush()
		}
	}
	q.Flush()
}

func receiveStream(t *testing.T, w way) {
	v, shown := buffers(8), make([]Packet, 8)
	for n := 0; n < streamLength; {
		if n%3 == 0 {
			w.rx.Arm()
			w.rx.Disarm()
		}
		got := w.rx.Peek(shown)
		for _, p := range shown[:got] {
			v[0] = v[0][:p.Len()]
			p.CopyTo(v[0])
			if len(v[0]) != streamSize(n) || !hasPattern(v[0], n) {
				t.Errorf("%s: packet %d is %d bytes", w.name, n, len(v[0]))
				return
			}
			n++
		}
		w.rx.Release()
		if got == 0 {
			runtime.Gosched()
		}
	}
}
