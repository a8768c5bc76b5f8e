package memif

import (
	"net"
	"testing"
	"unsafe"
)

// heapPair is both ends of a connection over memory of the heap, which the race detector watches and checkptr bounds.
func heapPair(l layout) (server, client *Conn) {
	words := make([]uint64, (l.size()+7)/8)
	base := unsafe.Pointer(unsafe.SliceData(words))
	server, client = newConn(&control{socket: new(net.UnixConn)}), newConn(&control{socket: new(net.UnixConn)})
	for _, c := range []*Conn{server, client} {
		c.memory.regions = []region{{base: base, size: l.size()}}
	}
	eventfds := make([]int, l.rings())
	for i := range eventfds {
		eventfds[i] = -1
	}
	l.addQueues(client, eventfds, DefaultMaxPacket)
	for i := range l.rings() {
		r := newRing{offset: uint32(l.ringOffset(i)), log2: l.log2}
		add := server.addRx
		if i >= l.toServer {
			add = server.addTx
		}
		if err := add(r, -1, DefaultMaxPacket); err != nil {
			panic(err)
		}
	}
	return server, client
}

// way is one direction of a connection.
type way struct {
	name string
	tx   *TxQueue
	rx   *RxQueue
}

func ways(server, client *Conn) []way {
	return []way{
		{"to server", client.tx[0], server.rx[0]},
		{"to client", server.tx[0], client.rx[0]},
	}
}

// fillPattern makes packet number n of a stream recognisable at each byte.
func fillPattern(b []byte, n int) {
	for i := range b {
		b[i] = byte(n*31 + i + i>>8)
	}
}

func hasPattern(b []byte, n int) bool {
	for i := range b {
		if b[i] != byte(n*31+i+i>>8) {
			return false
		}
	}
	return true
}

func TestAddressesInARing(t *testing.T) {
	if got := ringBytes(1024); got != 128+1024*16 {
		t.Errorf("a ring of 1024 slots takes %d bytes", got)
	}
	server, client := heapPair(layout{toServer: 1, toClient: 1, log2: 4, bufferSize: 64})
	to := client.tx[0].ring
	raw := unsafe.Slice((*byte)(to.header), 64+4)
	server.rx[0].ring.maskInterrupts(false)
	to.setHead(0x1234)
	if raw[4] != 0 || raw[6] != 0x34 || raw[7] != 0x12 {
		t.Errorf("flags and head are % x", raw[4:8])
	}
	server.rx[0].ring.maskInterrupts(true)
	server.rx[0].ring.setTail(0x5678)
	if raw[4] != 1 || to.head() != 0x1234 || raw[64] != 0x78 || raw[65] != 0x56 {
		t.Errorf("after mask and tail: % x", raw)
	}
}
