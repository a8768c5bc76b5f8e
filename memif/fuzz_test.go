package memif

import (
	"bytes"
	"net"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// FuzzHandshake feeds a server any sequence of messages, with descriptors of each kind: it must neither panic nor keep
// what it was sent.
func FuzzHandshake(f *testing.F) {
	add := func(parts ...*message) {
		var b []byte
		for _, m := range parts {
			b = append(append(b, byte(m.kind())), m[:64]...)
		}
		f.Add(b)
	}
	init := initiation{version: version, name: "fuzz"}.encode()
	add(init, newRegion{size: 4096}.encode(), newRing{toServer: true}.encode(), named(connectMessage, "x"))
	add(init, newRing{log2: 14}.encode(), disconnection(refusal("bye")))
	f.Fuzz(func(t *testing.T, data []byte) {
		l := &Listener{interfaces: map[uint32]*Interface{}}
		l.options.complete()
		c := Config{}
		if err := c.complete(); err != nil {
			t.Fatal(err)
		}
		l.interfaces[0] = &Interface{config: c, listener: l}
		h := &handshake{listener: l, conn: newConn(&control{socket: new(net.UnixConn)})}
		for len(data) >= 65 {
			m, fd := new(message), descriptorFor(data[0])
			copy(m[:], data[1:65])
			data = data[65:]
			err := h.handle(m, &fd)
			if fd >= 0 {
				_ = unix.Close(fd)
			}
			if err != nil {
				break
			}
		}
		for _, q := range h.conn.rx {
			q.Receive(buffers(4))
		}
		for _, q := range h.conn.tx {
			q.Send(packets(4, 100))
		}
		h.conn.Release()
	})
}

// descriptorFor makes one of a kind.
func descriptorFor(kind byte) int {
	fd := -1
	switch kind % 4 {
	case 0:
		fd, _ = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	case 1, 2:
		fd, _ = unix.MemfdCreate("fuzz", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
		_ = unix.Ftruncate(fd, 1<<16)
	}
	return fd
}

// FuzzDescriptors lets a server use rings with anything in them: it must stay within the region.
func FuzzDescriptors(f *testing.F) {
	f.Add(make([]byte, 64), uint16(4), uint16(4))
	f.Add(bytes.Repeat([]byte{1, 0, 0, 0, 64, 0, 0, 0}, 8), uint16(8), uint16(8))
	f.Fuzz(func(t *testing.T, data []byte, toServer, toClient uint16) {
		l := layout{toServer: 1, toClient: 1, log2: 3, bufferSize: 128}
		const canary = 1 << 12
		words := make([]uint64, (l.size()+2*canary)/8+1)
		whole := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), len(words)*8)
		inside := whole[canary : canary+l.size()]
		base := unsafe.Pointer(unsafe.SliceData(inside))
		server := newConn(&control{socket: new(net.UnixConn)})
		server.memory.regions = []region{{base: base, size: l.size()}}
		for i := range l.rings() {
			r := l.newRing(base, i)
			at := i * len(data) / 2
			copy(unsafe.Slice((*byte)(r.slots), int(r.size)*slotSize), data[at:])
			r.setHead([]uint16{toServer, toClient}[i])
		}
		if server.addRx(newRing{log2: l.log2}, -1, 5000) != nil ||
			server.addTx(newRing{log2: l.log2, offset: uint32(l.ringOffset(1))}, -1, 5000) != nil {
			t.Fatal("rings are refused")
		}
		server.rx[0].Peek(make([]Packet, 2))
		server.rx[0].Receive(buffers(8))
		server.tx[0].Reserve(100)
		server.tx[0].Commit(90)
		for _, size := range []int{1, 128, 129, 1024, 1025} {
			server.tx[0].Send(packets(1, size))
		}
		outside := append(bytes.Clone(whole[:canary]), whole[canary+l.size():]...)
		if len(bytes.Trim(outside, "\x00")) != 0 {
			t.Error("wrote beyond the region")
		}
	})
}

func FuzzParseDescriptions(f *testing.F) {
	f.Add([]byte(someDescriptions))
	f.Fuzz(func(t *testing.T, data []byte) {
		all, err := ParseDescriptions(data)
		if err != nil && all != nil {
			t.Error("gave something with an error")
		}
	})
}
