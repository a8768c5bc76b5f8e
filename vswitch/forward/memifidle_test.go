package forward_test

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/vswitch/forward"
)

// processorTime is the CPU time of this process.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// hop sends a frame and returns when it has arrived at the other memif; false if it does not.
func hop(from, to *memif.Conn, b []byte) bool {
	from.TxQueues()[0].Send([][]byte{b})
	room := [][]byte{make([]byte, 2048)}
	for begin := time.Now(); time.Since(begin) < time.Minute; {
		for range 1000 {
			if to.RxQueues()[0].Receive(room) == 1 {
				return true
			}
		}
		runtime.Gosched()
	}
	return false
}

func TestIdleMemifsCostNoProcessorTime(t *testing.T) {
	l := newMemifLab(t)
	l.serve(2)
	a := l.connect(1)
	b := l.connect(2)
	defer a.Release()
	defer b.Release()
	for range 3 {
		if !hop(a, b, numberedFrame(1, 2, 0, 64)) {
			t.Fatal("a frame is lost")
		}
		eventually(t, "a tenth of a second with hardly any processor time", func() bool {
			before := processorTime(t)
			<-time.After(100 * time.Millisecond)
			return processorTime(t)-before < 10*time.Millisecond
		})
	}
}

// Frames arrive while the worker polls, while it prepares to sleep and while it sleeps.
func TestWorkerSleepsMissNoFrames(t *testing.T) {
	l := newMemifLab(t)
	l.serve(2)
	a := l.connect(1)
	b := l.connect(2)
	defer a.Release()
	defer b.Release()
	b.TxQueues()[0].Send([][]byte{numberedFrame(2, 1, 0, 64)})
	for n := range uint32(1000) {
		if !hop(a, b, numberedFrame(1, 2, n, 64)) {
			t.Fatalf("frame %d did not arrive", n)
		}
		for begin, pause := time.Now(), time.Duration(rand.IntN(400))*time.Microsecond; time.Since(begin) < pause; {
			runtime.Gosched()
		}
	}
}

// Clients that reconnect all the time neither delay others nor leak resources.
func TestManyConnectsDoNotDisturbOthers(t *testing.T) {
	const connects = 100
	l := newMemifLab(t)
	l.serve(3)
	a := l.connect(1)
	b := l.connect(2)
	defer a.Release()
	defer b.Release()
	l.warmUp(t, a, b)
	l.freed(t, 3)
	before := steadyResources(t)
	stop := l.stream(a, b, [2]byte{1, 2})
	begin := time.Now()
	for range connects {
		l.connect(3, func(c *memif.ClientConfig) {
			c.RingSize = 64
			c.BufferSize = 256
		}).Release()
		l.next(3, forward.PeerGone)
	}
	t.Logf("%.0f per minute", connects/time.Since(begin).Minutes())
	if stop() == 0 {
		t.Error("nothing was sent")
	}
	before.wantReleased(t)
}

// BenchmarkMemifHop measures the latency from one client's ring to another's; the worker polls on another CPU.
func BenchmarkMemifHop(b *testing.B) {
	l := newMemifLab(b)
	l.serve(2)
	from := l.connect(1)
	to := l.connect(2)
	defer from.Release()
	defer to.Release()
	to.TxQueues()[0].Send([][]byte{numberedFrame(2, 1, 0, 64)})
	took := make([]time.Duration, 0, b.N)
	frame := numberedFrame(1, 2, 0, 64)
	for b.Loop() {
		begin := time.Now()
		if !hop(from, to, frame) {
			b.Fatal("a frame is lost")
		}
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2]), "ns/median")
	b.ReportMetric(float64(took[len(took)*99/100]), "ns/p99")
}
