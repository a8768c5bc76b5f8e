package port

import (
	"bytes"
	"context"
	"path/filepath"
	"testing"

	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/vswitch/frame"
)

// memifEnds returns a port and its client.
func memifEnds(t *testing.T, bare bool) (*Memif, *memif.Conn) {
	t.Helper()
	return memifEndsOf(t, bare, memif.ClientConfig{})
}

// memifEndsOf is memifEnds with other rings of the client.
func memifEndsOf(t *testing.T, bare bool, c memif.ClientConfig) (*Memif, *memif.Conn) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "memif.sock")
	l, err := memif.Listen(path, memif.ListenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	mode := memif.Ethernet
	if bare {
		mode = memif.IP
	}
	connected := make(chan *memif.Conn, 1)
	gone := make(chan struct{})
	if _, err := l.Add(memif.Config{Mode: mode, Connected: func(c *memif.Conn) { connected <- c },
		Disconnected: func(*memif.Conn, error) { close(gone) }}); err != nil {
		t.Fatal(err)
	}
	c.Socket = path
	c.Mode = mode
	c.Name = "eth9"
	client, err := memif.Connect(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	m, err := NewMemif(<-connected, bare)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Release()
		<-gone
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return m, client
}

func TestBareMemifAddsEthernetHeaders(t *testing.T) {
	m, client := memifEnds(t, true)
	if m.Offload() != (Offload{}) || m.Peer().Interface != "eth9" {
		t.Errorf("offload %+v, peer %+v", m.Offload(), m.Peer())
	}
	packets := [][]byte{
		append([]byte{0x45}, bytes.Repeat([]byte{4}, 30)...), append([]byte{0x60}, bytes.Repeat([]byte{6}, 50)...),
		{0x10},
	}
	if n := client.TxQueues()[0].Send(packets); n != len(packets) {
		t.Fatalf("%d sent", n)
	}
	v := make([]*frame.Buffer, 8)
	frame.NewPool(2<<10, len(v)).Take(v)
	n, err := m.Receive(v)
	if err != nil || n != len(packets) {
		t.Fatalf("%d received, %v", n, err)
	}
	for i, kind := range []uint16{frame.TypeIPv4, frame.TypeIPv6, 0} {
		if e := frame.Ethernet(v[i].Bytes()); e.Type() != kind || !bytes.Equal(e.Payload(), packets[i]) {
			t.Errorf("packet %d is %x", i, []byte(e))
		}
	}
	if n, err := m.Transmit(v[:n]); err != nil || n != len(packets) {
		t.Fatalf("%d transmitted, %v", n, err)
	}
	room := [][]byte{make([]byte, 100), make([]byte, 100), make([]byte, 100)}
	if n := client.RxQueues()[0].Receive(room); n != len(packets) {
		t.Fatalf("%d came back", n)
	}
	for i := range packets {
		if !bytes.Equal(room[i], packets[i]) {
			t.Errorf("packet %d was returned as %x", i, room[i])
		}
	}
}

// A client chooses rings that hold no frame of the MTU. Such frames count as not transmitted, with one queue and with
// several.
func TestFrameThatTheRingNeverHoldsIsNotTransmitted(t *testing.T) {
	for _, queues := range []int{1, 2} {
		m, _ := memifEndsOf(t, false, memif.ClientConfig{RingSize: 2, BufferSize: 64, MTU: 100, RxQueues: queues})
		v := make([]*frame.Buffer, 2)
		frame.NewPool(2<<10, len(v)).Take(v)
		v[0].SetLen(1000)
		v[1].SetLen(100)
		if n, err := m.Transmit(v); n != 1 || err != nil {
			t.Errorf("%d queues: %d transmitted, %v", queues, n, err)
		}
		if v[0].Len() != 0 || v[1].Len() != 100 {
			t.Errorf("%d queues: frames of %d and %d bytes were transmitted", queues, v[0].Len(), v[1].Len())
		}
	}
}

// A client may change its memory while a frame is forwarded. The frame leaves as it was when it was decided on, and
// slots return to the client only after that.
func TestClientCannotChangeAReceivedHead(t *testing.T) {
	m, client := memifEnds(t, false)
	tx := client.TxQueues()[0]
	free := tx.Free()
	slot := tx.Reserve(1500)
	was := bytes.Repeat([]byte{1}, 1500)
	copy(slot, was)
	tx.Commit(1500)
	tx.Flush()
	v := make([]*frame.Buffer, 4)
	frame.NewPool(2<<10, len(v)).Take(v)
	if n, err := m.Receive(v); n != 1 || err != nil {
		t.Fatalf("%d received, %v", n, err)
	}
	for i := range slot {
		slot[i] = 2
	}
	if !bytes.Equal(v[0].Head(), was[:frame.HeadLen]) {
		t.Errorf("head changed to %x", v[0].Head())
	}
	if n, err := m.Transmit(v[:1]); n != 1 || err != nil {
		t.Fatalf("%d transmitted, %v", n, err)
	}
	room := [][]byte{make([]byte, 2048)}
	if n := client.RxQueues()[0].Receive(room); n != 1 || !bytes.Equal(room[0][:frame.HeadLen], was[:frame.HeadLen]) ||
		len(room[0]) != len(was) {
		t.Errorf("%d returned, %x", n, room[0])
	}
	if n := tx.Free(); n != free-1 {
		t.Errorf("%d slots are free while the frame is used, want %d", n, free-1)
	}
	if m.Done(); tx.Free() != free {
		t.Errorf("%d slots are free at the end, want %d", tx.Free(), free)
	}
}

// Without its client a memif neither receives nor accepts frames.
func TestMemifWithoutClientDropsFrames(t *testing.T) {
	m, client := memifEnds(t, false)
	client.TxQueues()[0].Send([][]byte{make([]byte, 60)})
	client.Close()
	<-client.Gone()
	<-m.conn.Gone()
	v := make([]*frame.Buffer, 4)
	frame.NewPool(2<<10, len(v)).Take(v)
	for _, b := range v {
		b.SetLen(60)
	}
	if n, err := m.Transmit(v); n != 0 || err != nil || v[0].Len() != 0 {
		t.Errorf("%d transmitted, %v", n, err)
	}
	if n, err := m.Receive(v); n != 0 || err != nil {
		t.Errorf("%d received, %v", n, err)
	}
	if m.Arm(true) {
		t.Error("frames wait")
	}
	m.Arm(false)
}

func FuzzFlowHash(f *testing.F) {
	f.Add([]byte{})
	f.Add(append(make([]byte, 12), 0x08, 0x00, 0x45))
	f.Add(append(append(make([]byte, 12), 0x86, 0xdd), bytes.Repeat([]byte{0x60}, 44)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		if flowHash(b) != flowHash(bytes.Clone(b)) {
			t.Error("one frame, two flows")
		}
	})
}
