package memif

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// dialLab connects a client and returns the server's end too.
func dialLab(t *testing.T, l *lab, c ClientConfig, events ClientEvents) (*Client, *Conn) {
	t.Helper()
	c.Socket = l.Path()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	client, err := Dial(ctx, c, events)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	server := await(t, l.connected, "connection")
	t.Cleanup(server.Release)
	return client, server
}

func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	return ctx
}

// The server sends with pauses in which the reader falls asleep, and without.
func TestSleepingReaderIsWoken(t *testing.T) {
	for _, spin := range []time.Duration{-1, time.Microsecond, 50 * time.Microsecond} {
		t.Run(spin.String(), func(t *testing.T) {
			l := newLab(t, ListenOptions{})
			l.add(t, Config{})
			client, server := dialLab(t, l, ClientConfig{Spin: spin, RxQueues: 3}, ClientEvents{})
			const count = 2000
			received := make(chan struct{}, count)
			var sending sync.WaitGroup
			defer sending.Wait()
			sending.Go(func() {
				for n := range count {
					if q := server.TxQueues()[n%3]; !q.Append([]byte{byte(n)}) {
						panic("full")
					}
					for _, q := range server.TxQueues() {
						q.Flush()
					}
					if n%2 == 0 {
						<-received
					}
				}
			})
			b := make([]byte, 100)
			for n := range count {
				if m, err := client.ReadPacket(deadline(t), b); m != 1 || err != nil {
					t.Fatalf("packet %d: %d, %v", n, m, err)
				}
				received <- struct{}{}
			}
		})
	}
}

func TestWriterWaitsForRoom(t *testing.T) {
	l := newLab(t, ListenOptions{})
	l.add(t, Config{})
	client, server := dialLab(t, l, ClientConfig{RingSize: 4}, ClientEvents{})
	sent := packets(10, 64)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if n, err := client.WriteBurst(ctx, sent); n != 4 || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("wrote %d into a ring of 4, %v", n, err)
	}
	wrote := make(chan error, 1)
	go func() {
		_, err := client.WriteBurst(deadline(t), sent)
		wrote <- err
	}()
	got := buffers(10)
	all := 0
	eventually(t, "all packets are received", func() bool {
		all += server.RxQueues()[0].Receive(got)
		return all == 14
	})
	if err := <-wrote; err != nil {
		t.Error(err)
	}
	for _, b := range [][]byte{nil, make([]byte, DefaultMaxPacket+1)} {
		if err := client.WritePacket(t.Context(), b); !errors.Is(err, io.ErrShortBuffer) {
			t.Errorf("packet of %d bytes: %v", len(b), err)
		}
	}
}

func TestClientReconnects(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	connected := make(chan Info, 10)
	gone := make(chan error, 10)
	failed := make(chan error, 1000)
	events := ClientEvents{
		Connected:    func(i Info) { connected <- i },
		Disconnected: func(err error) { gone <- err },
		Failed: func(err error) {
			select {
			case failed <- err:
			default:
			}
		},
	}
	dialled := make(chan *Client, 1)
	go func() {
		c, err := Dial(deadline(t), ClientConfig{Socket: path, Secret: "sesame"}, events)
		if err != nil {
			panic(err)
		}
		dialled <- c
	}()
	_ = await(t, failed, "failed attempt")
	serveOnce := func(secret Secret) (*Listener, *Interface) {
		l, err := Listen(path, ListenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		i, err := l.Add(Config{Secret: secret})
		if err != nil {
			t.Fatal(err)
		}
		return l, i
	}
	l, _ := serveOnce("other")
	eventually(t, "the client gets the reason", func() bool { return reasonFrom(<-failed) == "incorrect secret" })
	_ = l.Close()
	l, i := serveOnce("sesame")
	client := await(t, dialled, "client")
	await(t, connected, "connection")
	i.Disconnect("go away")
	if err := await(t, gone, "end of the connection"); reasonFrom(err) != "go away" {
		t.Errorf("ended with %v", err)
	}
	await(t, connected, "second connection")
	_ = l.Close()
	_ = await(t, gone, "end of the second connection")
	if err := client.WritePacket(t.Context(), []byte{1}); !errors.Is(err, ErrNotConnected) {
		t.Errorf("wrote without a connection: %v", err)
	}
	l, _ = serveOnce("sesame")
	await(t, connected, "third connection")
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	_ = l.Close()
}

func TestReaderSurvivesTheEndOfTheConnection(t *testing.T) {
	l := newLab(t, ListenOptions{})
	i := l.add(t, Config{})
	client, server := dialLab(t, l, ClientConfig{}, ClientEvents{})
	type outcome struct {
		n   int
		err error
	}
	read := make(chan outcome, 1)
	reader := func() {
		n, err := client.ReadPacket(deadline(t), make([]byte, 100))
		read <- outcome{n, err}
	}
	go reader()
	i.Disconnect("again")
	_ = await(t, l.disconnected, "end of the connection")
	server.Release()
	again := await(t, l.connected, "second connection")
	t.Cleanup(again.Release)
	again.TxQueues()[0].Send(packets(1, 33))
	if got := await(t, read, "packet"); got.n != 33 || got.err != nil {
		t.Errorf("read %+v", got)
	}
	go reader()
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	if got := await(t, read, "end of the reader"); !errors.Is(got.err, ErrClosed) {
		t.Errorf("read %+v of a closed client", got)
	}
	if _, err := client.ReadPacket(t.Context(), nil); !errors.Is(err, ErrClosed) {
		t.Errorf("read of a closed client: %v", err)
	}
}

func TestReaderEndsWithItsContext(t *testing.T) {
	l := newLab(t, ListenOptions{})
	l.add(t, Config{})
	client, server := dialLab(t, l, ClientConfig{}, ClientEvents{})
	for range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		if _, err := client.ReadPacket(ctx, make([]byte, 10)); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		cancel()
	}
	server.TxQueues()[0].Send(packets(1, 10))
	if n, err := client.ReadPacket(deadline(t), make([]byte, 10)); n != 10 || err != nil {
		t.Errorf("then read %d, %v", n, err)
	}
}

func TestDialEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := Dial(ctx, ClientConfig{Socket: filepath.Join(t.TempDir(), "s")}, ClientEvents{})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

func TestMoreQueuesThanAllowedAreRefused(t *testing.T) {
	l := newLab(t, ListenOptions{})
	l.add(t, Config{RxQueues: 2, TxQueues: 3})
	for want, c := range map[string]ClientConfig{
		"too many rings to the server: this interface has at most 2": {RxQueues: 3, TxQueues: 3},
		"too many rings to the client: this interface has at most 3": {RxQueues: 4, TxQueues: 2},
	} {
		c.Socket = l.Path()
		if _, err := Connect(t.Context(), c); reasonFrom(err) != want {
			t.Errorf("the client got %v, want %q", err, want)
		}
	}
}

// FD.io's gomemif takes the highest index of a ring in the hello for the number of rings.
func TestHelloOffersRingsToClientsThatReadAnIndexAsACount(t *testing.T) {
	l := newLab(t, ListenOptions{})
	l.add(t, Config{RxQueues: 1, TxQueues: 1})
	m, _, err := newLiar(t, l.Path()).receive()
	if err != nil {
		t.Fatal(err)
	}
	if offer := decodeHello(m); offer.maxToServer != 255 || offer.maxToClient != 255 {
		t.Errorf("the hello is %+v", offer)
	}
}

func TestFewerSlotsThanRequested(t *testing.T) {
	l := newLab(t, ListenOptions{})
	l.add(t, Config{RxQueues: 2, TxQueues: 3, RingSize: 256})
	server, client := connectPair(t, l, ClientConfig{RxQueues: 3, TxQueues: 2, RingSize: 4096})
	for name, i := range map[string]Info{"server": server.Info(), "client": client.Info()} {
		want := [2]int{2, 3}
		if name == "client" {
			want = [2]int{3, 2}
		}
		if got := [2]int{i.RxQueues, i.TxQueues}; got != want || i.RingSize != 256 {
			t.Errorf("%s: queues %v, rings of %d", name, got, i.RingSize)
		}
	}
	for i, q := range client.TxQueues() {
		q.Send([][]byte{fmt.Append(nil, "queue ", i)})
	}
	for i, q := range server.RxQueues() {
		got := buffers(2)
		if n := q.Receive(got); n != 1 || string(got[0]) != fmt.Sprint("queue ", i) {
			t.Errorf("queue %d: %d packets, %q", i, n, got[0])
		}
	}
}

func TestPacketsOfAClientAllocateNothing(t *testing.T) {
	l := newLab(t, ListenOptions{})
	l.add(t, Config{})
	client, server := dialLab(t, l, ClientConfig{}, ClientEvents{})
	packet := make([]byte, 64)
	got := make([]byte, 2048)
	echoed := buffers(1)
	ctx := t.Context()
	n := testing.AllocsPerRun(200, func() {
		if err := client.WritePacket(ctx, packet); err != nil {
			t.Error(err)
		}
		server.TxQueues()[0].Send(echoed[:server.RxQueues()[0].Receive(echoed)])
		if n, err := client.ReadPacket(ctx, got); n != 64 || err != nil {
			t.Errorf("read %d, %v", n, err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestPacketsBothWays(t *testing.T) {
	l := newLab(t, ListenOptions{})
	l.add(t, Config{ID: 7, Secret: "open sesame", Name: "node"})
	server, client := connectPair(t, l, ClientConfig{ID: 7, Secret: "open sesame", Name: "pod", Program: "test"})
	if i := server.Info(); i.PeerInterface != "pod" || i.Peer != "test" || i.RingSize != 1024 || i.BufferSize != 2048 ||
		i.Guarded {
		t.Errorf("the server's interface is %+v", i)
	}
	if i := client.Info(); i.PeerInterface != "node" || i.Peer != "weft" || i.RingSize != 1024 {
		t.Errorf("the client's interface is %+v", i)
	}
	for name, way := range map[string]struct {
		tx *TxQueue
		rx *RxQueue
	}{
		"to server": {client.TxQueues()[0], server.RxQueues()[0]},
		"to client": {server.TxQueues()[0], client.RxQueues()[0]},
	} {
		sent := [][]byte{[]byte("one"), bytes.Repeat([]byte("long"), 2000), []byte("three")}
		if n := way.tx.Send(sent); n != len(sent) {
			t.Fatalf("%s: sent %d", name, n)
		}
		got := [][]byte{make([]byte, 9000), make([]byte, 9000), make([]byte, 9000), make([]byte, 9000)}
		n := way.rx.Receive(got)
		if n != len(sent) {
			t.Fatalf("%s: received %d", name, n)
		}
		for i := range sent {
			if !bytes.Equal(sent[i], got[i]) {
				t.Errorf("%s: packet %d is %d bytes", name, i, len(got[i]))
			}
		}
	}
}

// Four goroutines use a connection over heap memory, where the race detector sees their accesses: a sender and a
// receiver in each of two directions, with interrupts and without.
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
	v := buffers(8)
	shown := make([]Packet, 8)
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

func readable(t *testing.T, fd int) bool {
	t.Helper()
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	return n == 1
}

// The server works as a worker does: it gets no notification while it polls, one when it sleeps, and misses no packet
// in between.
func TestServerSleepsAndIsWoken(t *testing.T) {
	l := newLab(t, ListenOptions{})
	l.add(t, Config{})
	server, client := connectPair(t, l, ClientConfig{})
	rx := server.RxQueues()[0]
	tx := client.TxQueues()[0]
	w, err := NewWaiter()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.Add(rx); err != nil {
		t.Fatal(err)
	}
	tx.Send(packets(1, 64))
	if readable(t, w.FD()) || tx.Stats().Rings != 0 {
		t.Error("notified while polling")
	}
	if !rx.Arm() {
		t.Error("Arm does not report the waiting packets")
	}
	rx.Receive(buffers(1))
	if rx.Arm() {
		t.Error("packets reported although none wait")
	}
	for range 3 {
		tx.Send(packets(1, 64))
		if !readable(t, w.FD()) {
			t.Error("not woken")
		}
		w.Clear()
		if readable(t, w.FD()) {
			t.Error("rings on")
		}
	}
	if n := rx.Waiting(); n != 3 {
		t.Errorf("%d wait", n)
	}
	rx.Disarm()
	tx.Send(packets(1, 64))
	w.Remove(rx)
	rx.Arm()
	tx.Send(packets(1, 64))
	if readable(t, w.FD()) {
		t.Error("notified after Disarm or Remove")
	}
}

// Two programs of which one listens, and the other one connects, restarts, and connects again.
func TestClientThatListens(t *testing.T) {
	c := ClientConfig{Socket: filepath.Join(t.TempDir(), "s"), ID: 3, Secret: "open"}
	server := c
	server.Listen = true
	listening := make(chan *Client, 1)
	ended := make(chan error, 10)
	go func() {
		one, err := Dial(t.Context(), server, ClientEvents{Disconnected: func(err error) { ended <- err }})
		if err != nil {
			t.Error(err)
		}
		listening <- one
	}()
	first := dial(t, c)
	one := await(t, listening, "the server's connection")
	defer one.Close()
	for range 3 {
		passPacket(t, first, one)
		passPacket(t, one, first)
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		_ = await(t, ended, "the end of the connection")
		first = dial(t, c)
	}
	passPacket(t, first, one)
	if i, connected := one.Info(); !connected || i.RxQueues != 1 || i.TxQueues != 1 {
		t.Errorf("connected %t: %+v", connected, i)
	}
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(c.Socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is there after Close: %v", err)
	}
}

// dial connects a client.
func dial(t *testing.T, c ClientConfig) *Client {
	t.Helper()
	client, err := Dial(t.Context(), c, ClientEvents{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// passPacket sends a packet from one client to another.
func passPacket(t *testing.T, from, to *Client) {
	t.Helper()
	want := []byte("a packet of one client to another one")
	eventually(t, "a sent packet", func() bool { return from.WritePacket(t.Context(), want) == nil })
	got := make([]byte, DefaultMaxPacket)
	n, err := to.ReadPacket(t.Context(), got)
	if err != nil || string(got[:n]) != string(want) {
		t.Fatalf("received %q, %v", got[:n], err)
	}
}

// A peer without a queue in one direction would have no place for the packets of the other end.
func TestClientThatListensRefusesAPeerWithoutQueues(t *testing.T) {
	c := ClientConfig{
		Socket: filepath.Join(t.TempDir(), "s"),
		ID:     hostileConfig.ID,
		Secret: hostileConfig.Secret,
		Listen: true,
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if _, err := Dial(ctx, c, ClientEvents{Connected: func(i Info) { t.Errorf("connected: %+v", i) }}); err == nil {
			t.Error("connected")
		}
	}()
	eventually(t, "the socket", func() bool { _, err := os.Lstat(c.Socket); return err == nil })
	l := newLiar(t, c.Socket)
	layout := hostileLayout
	layout.toClient = 0
	if err := l.memory.add(l.memfd(liedSize, unix.MFD_ALLOW_SEALING), liedSize); err != nil {
		t.Fatal(err)
	}
	layout.newRing(l.memory.regions[0].base, 0)
	l.say(start().encode(), -1)
	l.say(newRegion{size: liedSize}.encode(), l.fds[0])
	l.say(newRing{toServer: true, log2: layout.log2}.encode(), l.eventfd())
	l.say(named(connectMessage, "lie"), -1)
	for {
		kind, reason := l.firstAnswer()
		if kind == connectedMessage {
			continue
		}
		if kind != disconnectMessage || reason != "a queue in each direction is needed" {
			t.Errorf("answered %d %q", kind, reason)
		}
		break
	}
	cancel()
	<-ended
}
