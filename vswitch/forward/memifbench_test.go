package forward

import (
	"context"
	"net/netip"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/port"
)

// memifBench is an engine with memifs on interfaces 1 and 2; the test drives its worker and both clients on one CPU.
type memifBench struct {
	engine  *Engine
	worker  *worker
	clients [2]*memif.Conn
}

func newMemifBench(tb testing.TB, change func(*memif.ClientConfig)) *memifBench {
	tb.Helper()
	e, err := New(Config{})
	if err != nil {
		tb.Fatal(err)
	}
	b := &memifBench{engine: e, worker: e.workers[0]}
	path := filepath.Join(tb.TempDir(), "memif.sock")
	for i := range b.clients {
		if err := e.OpenMemif(uint32(i+1), port.MemifConfig{Socket: path, ID: uint32(i)}); err != nil {
			tb.Fatal(err)
		}
		c := memif.ClientConfig{Socket: path, ID: uint32(i)}
		change(&c)
		if b.clients[i], err = memif.Connect(context.Background(), c); err != nil {
			tb.Fatal(err)
		}
		b.await(tb, PeerConnected)
	}
	tb.Cleanup(func() {
		close(e.stopped)
		close(b.worker.requests.ended)
		for _, c := range b.clients {
			c.Release()
		}
		if err := e.memifs.closeAll(); err != nil {
			tb.Error(err)
		}
		_ = e.supervisor.closeAll()
		e.free()
	})
	return b
}

// await runs the worker until an event arrives.
func (b *memifBench) await(tb testing.TB, kind EventKind) {
	tb.Helper()
	for {
		select {
		case ev := <-b.engine.Events():
			if ev.Kind != kind {
				tb.Fatalf("got %+v", ev)
			}
			return
		default:
			b.worker.round()
			runtime.Gosched()
		}
	}
}

// ring makes the worker check epoll, as it does by itself within some rounds: idle ports are not polled before.
func (b *memifBench) ring() { b.worker.rx.wake(b.worker.rx.poll.ready()) }

// bridge adds both memifs to a bridge domain.
func (b *memifBench) bridge(tb testing.TB) {
	tb.Helper()
	for index := uint32(1); index <= 2; index++ {
		if err := b.engine.SetInterface(index, Interface{Up: true, MAC: portMAC}); err != nil {
			tb.Fatal(err)
		}
	}
	if err := b.engine.SetBridge(Bridge{ID: 1, Learn: true, Forward: true, Flood: true, UUFlood: true, BVI: NoInterface,
		Members: []BridgeMember{{Interface: 1}, {Interface: 2}}}); err != nil {
		tb.Fatal(err)
	}
	b.engine.Publish()
}

// route routes 10.2.0.0/16 to the second memif.
func (b *memifBench) route(tb testing.TB) {
	tb.Helper()
	for index := uint32(1); index <= 2; index++ {
		if err := b.engine.SetInterface(index, Interface{
			Up:        true,
			MAC:       portMAC,
			Addresses: []netip.Addr{netip.MustParseAddr("10.1.0.1")},
		}); err != nil {
			tb.Fatal(err)
		}
	}
	next := netip.MustParseAddr("10.2.0.1")
	if err := b.engine.SetRoute(TableKey{Family: IP4}, netip.MustParsePrefix("10.2.0.0/16"), Route{
		Paths: []Path{{Interface: 2, NextHop: next}},
	}); err != nil {
		tb.Fatal(err)
	}
	if err := b.engine.SetNeighbour(2, next, podMAC, true); err != nil {
		tb.Fatal(err)
	}
	b.engine.Publish()
}

// threadTime is the CPU time of this thread: on a busy machine wall-clock time includes other processes.
func threadTime() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now)
	return time.Duration(now.Nano())
}

// cross sends v from the first client and returns the number of frames at the second client and the worker's time.
func (b *memifBench) cross(tb testing.TB, v, room [][]byte) (int, time.Duration) {
	tb.Helper()
	if n := b.clients[0].TxQueues()[0].Send(v); n != len(v) {
		tb.Fatalf("%d of %d fit", n, len(v))
	}
	b.ring()
	begin := threadTime()
	for b.worker.round() {
	}
	took := threadTime() - begin
	n := 0
	for _, q := range b.clients[1].RxQueues() {
		n += q.Receive(room[n:])
	}
	return n, took
}

func BenchmarkMemif(tb *testing.B) {
	for _, c := range []struct {
		name string
		wire func(*memifBench, testing.TB)
		size int
	}{
		{"L2/64", (*memifBench).bridge, 64 - 14 - 28}, {"L2/1500", (*memifBench).bridge, 1500 - 14 - 28},
		{"L3/64", (*memifBench).route, 64 - 14 - 28}, {"L3/1500", (*memifBench).route, 1500 - 14 - 28},
	} {
		tb.Run(c.name, func(tb *testing.B) {
			b := newMemifBench(tb, func(*memif.ClientConfig) {})
			c.wire(b, tb)
			v := make([][]byte, 256)
			room := make([][]byte, 256)
			for i := range v {
				v[i] = udp4("10.2.7.7", c.size)
				room[i] = make([]byte, 2048)
				copy(v[i][6:], []byte{2, 9, 9, 9, 9, byte(i)})
			}
			b.teach(tb)
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			tb.ReportAllocs()
			tb.ResetTimer()
			var busy time.Duration
			for done := 0; done < tb.N; done += len(v) {
				n, took := b.cross(tb, v, room)
				if busy += took; n != len(v) {
					tb.Fatalf("%d of %d arrived; drops %v", n, len(v), b.engine.Drops())
				}
			}
			tb.ReportMetric(float64(busy)/float64((tb.N+len(v)-1)/len(v)*len(v)), "ns/packet")
		})
	}
}

// teach lets the bridge domain learn the destination on the second memif.
func (b *memifBench) teach(tb testing.TB) {
	tb.Helper()
	hello := udp4("10.9.0.9", 18)
	frame.PutEthernet(hello, frame.Broadcast, portMAC, frame.TypeIPv4)
	if n := b.clients[1].TxQueues()[0].Send([][]byte{hello}); n != 1 {
		tb.Fatal("hello not sent")
	}
	b.ring()
	for b.worker.round() {
	}
	if n := b.clients[0].RxQueues()[0].Receive([][]byte{make([]byte, 2048)}); n > 1 {
		tb.Fatalf("%d arrived", n)
	}
}
