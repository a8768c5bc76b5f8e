package forward_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/port"
)

// memifLab is a running engine with memifs in a bridge domain.
type memifLab struct {
	testing.TB
	engine *forward.Engine
	socket string
	seen   chan forward.Event
	peer   *port.MemifPeer // of the last connection
}

func newMemifLab(t testing.TB) *memifLab { t.Helper(); return newMemifLabOf(t, 1) }

func newMemifLabOf(t testing.TB, workers int) *memifLab {
	t.Helper()
	e, end := startEngine(t, workers)
	l := &memifLab{
		TB:     t,
		engine: e,
		socket: filepath.Join(t.TempDir(), "memif.sock"),
		seen:   make(chan forward.Event, 1<<16),
	}
	ctx, cancel := context.WithCancel(context.Background())
	var reader sync.WaitGroup
	reader.Go(func() {
		for {
			select {
			case ev := <-e.Events():
				l.seen <- ev
			case <-ctx.Done():
				return
			}
		}
	})
	t.Cleanup(func() {
		end()
		cancel()
		reader.Wait()
	})
	return l
}

// serve adds memifs 1 to n in one bridge domain.
func (l *memifLab) serve(n uint32) {
	l.Helper()
	b := forward.Bridge{ID: 1, Learn: true, Forward: true, Flood: true, UUFlood: true, BVI: forward.NoInterface}
	for index := uint32(1); index <= n; index++ {
		l.open(index)
		b.Members = append(b.Members, forward.BridgeMember{Interface: index})
	}
	if err := l.engine.SetBridge(b); err != nil {
		l.Fatal(err)
	}
	l.engine.Publish()
}

func (l *memifLab) open(index uint32) {
	l.Helper()
	if err := l.engine.OpenMemif(index, port.MemifConfig{
		Socket: l.socket,
		ID:     index,
		Secret: "open sesame",
		Name:   "memif",
	}); err != nil {
		l.Fatal(err)
	}
	if err := l.engine.SetInterface(index, forward.Interface{Up: true}); err != nil {
		l.Fatal(err)
	}
}

// connect connects a client, and retries while the previous one is connected. It waits until frames reach the client.
func (l *memifLab) connect(id uint32, change ...func(*memif.ClientConfig)) *memif.Conn {
	l.Helper()
	c := memif.ClientConfig{Socket: l.socket, ID: id, Secret: "open sesame"}
	for _, f := range change {
		f(&c)
	}
	var conn *memif.Conn
	eventually(l.TB, "client connects", func() bool {
		var err error
		conn, err = memif.Connect(l.Context(), c)
		return err == nil
	})
	l.peer = l.next(id, forward.PeerConnected).Peer
	return conn
}

// next waits for an event of an interface.
func (l *memifLab) next(index uint32, kind forward.EventKind) forward.Event {
	l.Helper()
	for {
		select {
		case ev := <-l.seen:
			if ev.Interface == index && ev.Kind == kind {
				return ev
			}
		case <-time.After(time.Minute):
			l.Fatalf("no event %d of interface %d", kind, index)
		}
	}
}

// numberedFrame is a frame between the clients of two memifs that carries a number.
func numberedFrame(from, to byte, n uint32, size int) []byte {
	b := make([]byte, max(size, 64))
	frame.PutEthernet(b, frame.MAC{2, 0, 0, 0, 0, to}, frame.MAC{2, 0, 0, 0, 0, from}, 0x88b5)
	copy(b[14:], []byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
	return b
}

// stream sends frames from one client to another, never more at a time than a ring holds, until stop is called. stop
// returns the number of frames, and fails the test if one was lost or reordered.
func (l *memifLab) stream(from, to *memif.Conn, ids [2]byte) (stop func() uint32) {
	const window = 256
	var sent, received atomic.Uint32
	var disorder atomic.Bool
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	teach := numberedFrame(ids[1], ids[0], ^uint32(0), 64)
	to.TxQueues()[0].Send([][]byte{teach})
	running.Go(func() {
		for ctx.Err() == nil {
			if n := sent.Load(); n-received.Load() < window &&
				from.TxQueues()[0].Append(numberedFrame(ids[0], ids[1], n, 64)) {
				sent.Add(1)
			}
			from.TxQueues()[0].Flush()
			runtime.Gosched() // test machines are small
		}
	})
	running.Go(func() {
		room := [][]byte{make([]byte, 2048)}
		for ctx.Err() == nil || received.Load() != sent.Load() && !l.Failed() {
			if to.RxQueues()[0].Receive(room) == 0 {
				runtime.Gosched()
				continue
			}
			b := room[0]
			if n := received.Load(); b[12] == 0x88 &&
				!slices.Equal(b[14:18], []byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}) {
				disorder.Store(true)
			}
			received.Add(1)
		}
	})
	return func() uint32 {
		cancel()
		done := make(chan struct{})
		go func() { running.Wait(); close(done) }()
		select {
		case <-done:
		case <-time.After(time.Minute):
			l.Errorf("%d of %d arrived: %v", received.Load(), sent.Load(), l.engine.Drops())
		}
		if disorder.Load() {
			l.Error("out of order")
		}
		return sent.Load()
	}
}

// resources are the process's descriptors by type and its mappings of shared memory.
type resources map[string]int

func remains(t testing.TB) resources {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	now := resources{}
	for _, fd := range fds {
		if of, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil {
			kind, _, _ := strings.Cut(of, ":[")
			now[kind]++
		}
	}
	mapped, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	now["mappings"] = bytes.Count(mapped, []byte("/memfd:"))
	return now
}

// steadyResources waits until resources do not change for a while: earlier ones may still be released.
func steadyResources(t testing.TB) resources {
	t.Helper()
	before := remains(t)
	eventually(t, "nothing more goes", func() bool {
		<-time.After(100 * time.Millisecond)
		last := before
		before = remains(t)
		return maps.Equal(last, before)
	})
	return before
}

// wantReleased fails the test unless all resources added since before are released soon.
func (before resources) wantReleased(t testing.TB) {
	t.Helper()
	var now resources
	defer func() {
		if t.Failed() {
			t.Logf("before %v, now %v", before, now)
		}
	}()
	eventually(t, "descriptors and mappings are as before", func() bool {
		now = remains(t)
		for kind, n := range now {
			if n > before[kind] {
				return false
			}
		}
		return true
	})
}

func TestMemifClientReconnects(t *testing.T) {
	l := newMemifLab(t)
	l.serve(2)
	for range 3 {
		a, b := l.connect(1), l.connect(2, func(c *memif.ClientConfig) {
			c.RxQueues = 3
			c.TxQueues = 2
			c.RingSize = 256
		})
		if p := l.peer; p.RxQueues != 2 || p.TxQueues != 3 || p.RingSize != 256 || p.Guarded {
			t.Errorf("peer %+v", p)
		}
		a.Release()
		l.next(1, forward.PeerGone)
		b.Release()
		l.next(2, forward.PeerGone)
	}
}

// Frames longer than a slot, in both directions, with rings of all sizes and several queues.
func TestFramesOfAllLengthsCrossMemifs(t *testing.T) {
	l := newMemifLab(t)
	l.serve(2)
	a := l.connect(1, func(c *memif.ClientConfig) {
		c.BufferSize = 128
		c.RingSize = 2048
	})
	b := l.connect(2, func(c *memif.ClientConfig) {
		c.BufferSize = 1024
		c.RingSize = 256
		c.RxQueues = 2
	})
	defer a.Release()
	defer b.Release()
	b.TxQueues()[0].Send([][]byte{numberedFrame(2, 1, 0, 64)})
	room := [][]byte{make([]byte, 72<<10)}
	eventually(t, "the first frame", func() bool { return a.RxQueues()[0].Receive(room) == 1 })
	for _, size := range []int{60, 127, 128, 129, 1024, 1025, 1514, 9014, 65549, 70 << 10} {
		sent := numberedFrame(1, 2, uint32(size), size)
		for i := 64; i < size; i++ {
			sent[i] = byte(i * 7)
		}
		if n := a.TxQueues()[0].Send([][]byte{sent}); n != 1 {
			t.Fatalf("%d bytes not sent", size)
		}
		eventually(t, "a frame", func() bool {
			room[0] = room[0][:cap(room[0])]
			return b.RxQueues()[0].Receive(room) == 1 || b.RxQueues()[1].Receive(room) == 1
		})
		if !bytes.Equal(room[0], sent) {
			t.Errorf("%d bytes: got a different frame of %d", size, len(room[0]))
		}
	}
}

// Flows are spread over the client's queues, and each stays in order.
func TestFlowStaysInItsQueue(t *testing.T) {
	l := newMemifLab(t)
	l.serve(2)
	a := l.connect(1)
	b := l.connect(2, func(c *memif.ClientConfig) { c.RxQueues = 4 })
	defer a.Release()
	defer b.Release()
	const (
		flows = 32
		each  = 8
	)
	for n := range uint32(flows * each) {
		if a.TxQueues()[0].Send([][]byte{numberedFrame(byte(3+n%flows), 2, n/flows, 64)}) != 1 {
			t.Fatal("not sent")
		}
	}
	where := map[byte]int{}
	used := map[int]bool{}
	came := map[byte]byte{}
	for total := 0; total < flows*each; {
		for i, q := range b.RxQueues() {
			room := [][]byte{make([]byte, 128)}
			if q.Receive(room) == 0 {
				continue
			}
			total++
			flow := room[0][11]
			if at, known := where[flow]; known && at != i {
				t.Fatalf("flow %d in queues %d and %d", flow, at, i)
			}
			if room[0][17] != came[flow] {
				t.Fatalf("flow %d: frame %d after %d", flow, room[0][17], came[flow])
			}
			where[flow] = i
			used[i] = true
			came[flow]++
		}
	}
	if len(used) < 3 {
		t.Errorf("%d flows in %d queues", flows, len(used))
	}
}

// A memif is deleted while its client sends, and the socket file with the last memif; traffic of another memif loses
// nothing.
func TestMemifsAreDeletedUnderTraffic(t *testing.T) {
	l := newMemifLabOf(t, 2)
	l.serve(2)
	a := l.connect(1)
	b := l.connect(2)
	stop := l.stream(a, b, [2]byte{1, 2})
	for range 20 {
		l.open(3)
		l.engine.Publish()
		c := l.connect(3)
		for range 100 {
			c.TxQueues()[0].Send([][]byte{numberedFrame(3, 9, 1, 64)})
		}
		if err := l.engine.ClosePort(3); err != nil {
			t.Fatal(err)
		}
		l.engine.DelInterface(3)
		l.engine.Publish()
		<-c.Gone()
		c.Release()
	}
	if sent := stop(); sent == 0 {
		t.Error("nothing was sent")
	}
	a.Release()
	b.Release()
	for index := uint32(1); index <= 2; index++ {
		if _, err := os.Stat(l.socket); err != nil {
			t.Error("socket file before the last close:", err)
		}
		if err := l.engine.ClosePort(index); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(l.socket); err == nil {
		t.Error("socket file exists after the last close")
	}
}

func TestMemifWithoutDirectoryIsRejected(t *testing.T) {
	l := newMemifLab(t)
	missing := port.MemifConfig{Socket: filepath.Join(t.TempDir(), "none", "memif.sock")}
	if err := l.engine.OpenMemif(1, missing); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if err := l.engine.ClosePort(1); !errors.Is(err, forward.ErrNoPort) {
		t.Errorf("resources left: %v", err)
	}
}
