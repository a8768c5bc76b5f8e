package memif

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// memcpyRing is the minimal cost of a ring of packets: a copy in and a copy out.
type memcpyRing struct {
	slots [1024][2048]byte
	at    int
}

func (r *memcpyRing) forward(from, to [][]byte) {
	for i, p := range from {
		copy(r.slots[(r.at+i)&1023][:], p)
	}
	for i := range to {
		to[i] = to[i][:copy(to[i][:cap(to[i])], r.slots[(r.at+i)&1023][:len(from[i])])]
	}
	r.at += len(from)
}

func BenchmarkForward64(b *testing.B)   { benchmarkForward(b, 64) }
func BenchmarkForward1500(b *testing.B) { benchmarkForward(b, 1500) }

// benchmarkForward sends bursts from a client to the server and back, on one thread: a packet passes four queues. It
// reports the thread's own time, which does not depend on the machine's load, and its ratio to that of memcpyRing.
func benchmarkForward(b *testing.B, size int) {
	const burst = 64
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	server, client := connectForBenchmark(b)
	sent := packets(burst, size)
	got := buffers(burst)
	back := buffers(burst)
	var memcpy memcpyRing
	start := threadTime(b)
	for range b.N/burst + 1 {
		memcpy.forward(sent, got)
		memcpy.forward(got, back)
	}
	least := threadTime(b) - start
	b.ReportAllocs()
	b.ResetTimer()
	start = threadTime(b)
	for range b.N/burst + 1 {
		client.TxQueues()[0].Send(sent)
		n := server.RxQueues()[0].Receive(got)
		server.TxQueues()[0].Send(got[:n])
		if m := client.RxQueues()[0].Receive(back); m != burst {
			b.Fatalf("%d of %d packets returned", m, burst)
		}
	}
	took := threadTime(b) - start
	b.StopTimer()
	b.ReportMetric(float64(took.Nanoseconds())/float64(b.N), "ns/packet")
	b.ReportMetric(float64(took)/float64(least), "x-memcpy")
	b.ReportMetric(0, "ns/op")
}

// threadTime returns the thread's processor time.
func threadTime(b *testing.B) time.Duration {
	b.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now); err != nil {
		b.Fatal(err)
	}
	return time.Duration(now.Nano())
}

// BenchmarkRing measures the cost of an interrupt for its sender.
func BenchmarkRing(b *testing.B) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		b.Fatal(err)
	}
	defer unix.Close(fd)
	if err := Prepare(); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		notify(fd)
	}
}

func connectForBenchmark(b *testing.B) (server, client *Conn) {
	b.Helper()
	connected := make(chan *Conn, 1)
	l, err := Listen(b.TempDir()+"/s", ListenOptions{})
	if err != nil {
		b.Fatal(err)
	}
	_, err = l.Add(Config{Connected: func(c *Conn) { connected <- c }, Disconnected: func(*Conn, error) {}})
	if err != nil {
		b.Fatal(err)
	}
	client, err = Connect(b.Context(), ClientConfig{Socket: l.Path()})
	if err != nil {
		b.Fatal(err)
	}
	server = <-connected
	b.Cleanup(func() {
		client.Release()
		server.Release()
		_ = l.Close()
	})
	return server, client
}

func packets(n, size int) [][]byte {
	v := make([][]byte, n)
	for i := range v {
		v[i] = make([]byte, size)
	}
	return v
}

func buffers(n int) [][]byte { return packets(n, 2048) }
