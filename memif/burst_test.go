package memif

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"pgregory.net/rapid"
)

// taken is a received packet, by any of the receive functions.
type taken func(q *RxQueue, into *[]byte) bool

var receivers = map[string]taken{
	"receive": func(q *RxQueue, into *[]byte) bool {
		v := [1][]byte{*into}
		n := q.Receive(v[:])
		*into = v[0]
		return n == 1
	},
	"peek": func(q *RxQueue, into *[]byte) bool {
		var v [1]Packet
		n := q.Peek(v[:])
		if n == 1 {
			*into = (*into)[:v[0].Len()]
			v[0].CopyTo(*into)
		}
		q.Release()
		return n == 1
	},
}

// Packets of 1 byte to 64 KiB in any mix pass rings and buffers of any size: all that fit arrive in order and
// unchanged, with each receive function.
func TestPacketsPassARingUnchangedAndInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := layout{
			toServer: 1, toClient: 1,
			log2:       uint8(rapid.IntRange(0, 8).Draw(t, "log2")),
			bufferSize: uint32(rapid.SampledFrom([]int{64, 100, 256, 2048, 9000, 65536}).Draw(t, "buffer")),
		}
		server, client := heapPair(l)
		for _, w := range ways(server, client) {
			for _, c := range []*Conn{server, client} {
				c.memory.guarded = rapid.Bool().Draw(t, "guarded")
			}
			exchange(t, l, w)
		}
	})
}

func exchange(t *rapid.T, l layout, w way) {
	size := rapid.OneOf(rapid.IntRange(1, 200), rapid.IntRange(1, 1<<16), rapid.Just(int(l.bufferSize)))
	var waiting [][]byte
	for step := range rapid.IntRange(1, 40).Draw(t, "steps") {
		if rapid.Bool().Draw(t, "send") {
			p := make([]byte, size.Draw(t, "size"))
			fillPattern(p, step)
			sent := w.tx.Send([][]byte{p}) == 1 && l.holds(p)
			if sent {
				waiting = append(waiting, p)
			}
			if !sent && l.holds(p) && len(waiting) == 0 {
				t.Fatalf("%s: %d bytes do not fit into an empty ring", w.name, len(p))
			}
			continue
		}
		how := rapid.SampledFrom([]string{"receive", "peek"}).Draw(t, "how")
		waiting = takeOne(t, w, receivers[how], waiting)
	}
	for len(waiting) > 0 {
		waiting = takeOne(t, w, receivers["receive"], waiting)
	}
	if s := w.rx.Stats(); s.Dropped() != 0 {
		t.Fatalf("%s: receiver dropped %+v", w.name, s)
	}
}

// holds reports whether a packet fits into the empty ring.
func (l layout) holds(p []byte) bool {
	return (len(p)+int(l.bufferSize)-1)/int(l.bufferSize) <= 1<<l.log2
}

func takeOne(t *rapid.T, w way, take taken, waiting [][]byte) [][]byte {
	got := make([]byte, 0, DefaultMaxPacket)
	if take(w.rx, &got) != (len(waiting) > 0) {
		t.Fatalf("%s: %d packets wait, received otherwise", w.name, len(waiting))
	}
	if len(waiting) == 0 {
		return waiting
	}
	if !bytes.Equal(got, waiting[0]) {
		t.Fatalf("%s: sent %d bytes, received %d others", w.name, len(waiting[0]), len(got))
	}
	return waiting[1:]
}

func TestReservedBufferIsSentAsCommitted(t *testing.T) {
	for _, guarded := range []bool{false, true} {
		server, client := heapPair(layout{toServer: 1, toClient: 1, log2: 1, bufferSize: 128})
		server.memory.guarded = guarded
		for _, w := range ways(server, client) {
			if b := w.tx.Reserve(129); b != nil {
				t.Errorf("%s: reserved more than a buffer", w.name)
			}
			for range 2 {
				b := w.tx.Reserve(100)
				fillPattern(b, 3)
				w.tx.Commit(60)
			}
			if w.tx.Reserve(1) != nil {
				t.Errorf("%s: reserved in a full ring", w.name)
			}
			w.tx.Flush()
			got := buffers(3)
			if n := w.rx.Receive(got); n != 2 || len(got[1]) != 60 || !hasPattern(got[1], 3) {
				t.Errorf("%s: received %d, %d bytes", w.name, n, len(got[1]))
			}
		}
	}
}

// A receiver with larger buffers does not get packets above the maximum length.
func TestOnlyPacketsAboveTheMaximumLengthAreDropped(t *testing.T) {
	server, client := heapPair(layout{toServer: 1, toClient: 1, log2: 4, bufferSize: 128})
	for _, w := range ways(server, client) {
		w.rx.maxPacket = 64
		w.tx.Send([][]byte{make([]byte, 10), make([]byte, 65), make([]byte, 300), make([]byte, 64)})
		got := packets(4, 512)
		if n := w.rx.Receive(got); n != 2 || len(got[0]) != 10 || len(got[1]) != 64 {
			t.Errorf("%s: received %d packets, of %d and %d bytes", w.name, n, len(got[0]), len(got[1]))
		}
	}
}

func TestOnlyPacketsLongerThanTheBufferAreDropped(t *testing.T) {
	server, client := heapPair(layout{toServer: 1, toClient: 1, log2: 4, bufferSize: 128})
	for _, w := range ways(server, client) {
		w.tx.Send([][]byte{make([]byte, 10), make([]byte, 100), make([]byte, 300), make([]byte, 11)})
		got := packets(4, 64)
		if n := w.rx.Receive(got); n != 2 || len(got[0]) != 10 || len(got[1]) != 11 || w.rx.Stats().TooLong != 2 {
			t.Errorf("%s: received %d, %+v", w.name, n, w.rx.Stats())
		}
	}
}

func TestBurstsAllocateNothing(t *testing.T) {
	server, client := heapPair(layout{toServer: 1, toClient: 1, log2: 8, bufferSize: 1024})
	sent := append(packets(31, 64), make([]byte, 5000))
	for _, guarded := range []bool{false, true} {
		server.memory.guarded = guarded
		for _, w := range ways(server, client) {
			w.tx.Reserve(1) // allocates the buffers of guarded queues
			w.rx.Peek(nil)
			for name, f := range map[string]func(){
				"receive": burstThrough(t, w, sent),
				"peek":    peekThrough(t, w, sent),
			} {
				allocatesNothing(t, fmt.Sprintf("%s, guarded %v, %s", w.name, guarded, name), f)
			}
		}
	}
}

func allocatesNothing(t *testing.T, name string, f func()) {
	t.Helper()
	if n := testing.AllocsPerRun(100, f); n != 0 {
		t.Errorf("%s: %v allocations", name, n)
	}
}

func burstThrough(t *testing.T, w way, sent [][]byte) func() {
	got := packets(len(sent), 8192)
	return func() {
		if w.tx.Send(sent) != len(sent) || w.rx.Receive(got) != len(sent) {
			t.Error("packets missing")
		}
	}
}

func peekThrough(t *testing.T, w way, sent [][]byte) func() {
	shown := make([]Packet, len(sent))
	return func() {
		for _, p := range sent {
			w.tx.Append(p)
		}
		w.tx.Flush()
		w.rx.Arm()
		if w.rx.Peek(shown) == 0 {
			t.Error("packets missing")
		}
		w.rx.Release()
		w.rx.Disarm()
	}
}

func TestNotifyingAddsOneAndAllocatesNothing(t *testing.T) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := Prepare(); err != nil {
		t.Fatal(err)
	}
	const runs = 3 * completions
	if n := testing.AllocsPerRun(runs, func() { notify(fd) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	notifyByWrite(fd)
	var count [8]byte
	if _, err := unix.Read(fd, count[:]); err != nil || binary.NativeEndian.Uint64(count[:]) != runs+2 {
		t.Errorf("the counter is %d, want %d, %v", binary.NativeEndian.Uint64(count[:]), runs+2, err)
	}
}
