package memif

import (
	"bytes"
	"errors"
	"io"
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// FuzzHandshake sends a server any sequence of messages, with descriptors of each kind: it must neither panic nor leak
// descriptors or memory.
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
		h := &handshake{listener: l, conn: newConn(&control{socket: noSocket()})}
		for len(data) >= 65 {
			m := new(message)
			fd := descriptorFor(data[0])
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

// descriptorFor returns a descriptor of a kind.
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

// FuzzDescriptors lets a server use rings with any content: it must stay within the region.
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
		server := newConn(&control{socket: noSocket()})
		server.memory.regions = []region{{base: base, size: l.size()}}
		for i := range l.rings() {
			r := l.newRing(base, i)
			at := i * len(data) / 2
			copy(unsafe.Slice((*byte)(r.slots), int(r.size)*slotSize), data[at:])
			r.setHead([]uint16{toServer, toClient}[i])
		}
		if server.addRx(newRing{log2: l.log2}, -1, 5000) != nil ||
			server.addTx(newRing{log2: l.log2, offset: uint32(l.ringOffset(1))}, -1, 5000) != nil {
			t.Fatal("the rings were refused")
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
			t.Error("returned packets with an error")
		}
	})
}

// FuzzGreeting connects a client to a server that sends anything. A resulting connection has no more queues and slots
// than requested and offered, and no descriptor is leaked.
func FuzzGreeting(f *testing.F) {
	var whole []byte
	add := func(m *message) { whole = append(append(whole, 0, messageSize), m[:]...) }
	add(hello{
		name:        "fuzz",
		minVersion:  version,
		maxVersion:  version,
		maxToClient: 1,
		maxToServer: 1,
		maxRingLog2: 5,
	}.encode())
	for range 6 {
		add(newMessage(ackMessage))
	}
	add(named(connectedMessage, "if0"))
	f.Add(whole)
	f.Add(append([]byte{2, messageSize}, hello{maxVersion: version}.encode()[:]...))
	f.Add(append([]byte{0, messageSize}, disconnection(refusal("no"))[:]...))
	f.Fuzz(func(t *testing.T, data []byte) {
		if Prepare() != nil {
			t.Skip("needs asynchronous I/O (fs.aio-max-nr)")
		}
		before := openNow(t)
		config := ClientConfig{Socket: "@fuzz", RxQueues: 2, TxQueues: 2, RingSize: 64, BufferSize: 128}
		if err := config.complete(); err != nil {
			t.Fatal(err)
		}
		client, server := connectedSockets(t)
		sent := sendAll(t, server, data)
		_ = server.CloseWrite()
		conn := newConn(&control{socket: client})
		err := (&clientHandshake{config: &config, conn: conn}).run()
		if err == nil {
			offer := decodeHello((*message)(sent[0]))
			if len(conn.tx) > min(2, int(offer.maxToServer)+1) || len(conn.rx) > min(2, int(offer.maxToClient)+1) ||
				conn.tx[0].ring.size > 1<<min(6, offer.maxRingLog2) {
				t.Errorf("%d and %d queues of %d slots, the offer was %+v", len(conn.tx), len(conn.rx),
					conn.tx[0].ring.size, offer)
			}
		}
		_ = client.Close()
		_ = server.Close()
		conn.Release()
		checkLeaks(t, before)
	})
}

// FuzzRelay lets a broker process relay anything that a client sends: the Broker gets complete messages with shared
// memory, an eventfd or /dev/null, a mark for each other descriptor, and the end.
func FuzzRelay(f *testing.F) {
	for kind := range byte(8) {
		f.Add(append([]byte{kind, messageSize}, make([]byte, messageSize)...))
	}
	f.Add([]byte{0, 5, 1, 2, 3, 4, 5, 0x12, 1, 9})
	f.Add([]byte{2, 0, 0, 1, 9})
	f.Fuzz(func(t *testing.T, data []byte) {
		before := openNow(t)
		null, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		relay, broker := connectedSockets(t)
		socket, client := connectedSockets(t)
		var want []relayedMessage
		for _, m := range parsePeer(data) {
			fds := m.descriptors()
			if _, _, err := client.WriteMsgUnix(m.body, rightsOf(fds), nil); err != nil {
				t.Fatal(err)
			}
			closeAll(fds)
			if len(m.body) == 0 && len(fds) == 0 {
				break // the end of a SOCK_SEQPACKET; Go sends a byte with descriptors
			}
			want = append(want, m.relayed())
		}
		_ = client.Close()
		(&relayed{process: &brokerProcess{null: null}, relay: relay, socket: socket}).toBroker()
		got := receiveRelayed(t, broker)
		if len(got) != len(want) {
			t.Fatalf("%d messages were relayed, want %d", len(got), len(want))
		}
		for i := range want {
			if got[i].kind != want[i].kind || !bytes.Equal(got[i].body, want[i].body) {
				t.Errorf("message %d: %+v, want %+v", i, got[i], want[i])
			}
		}
		_ = relay.Close()
		_ = broker.Close()
		_ = socket.Close()
		_ = unix.Close(null)
		checkLeaks(t, before)
	})
}

// FuzzNotes sends any notes to both ends of a broker's channel. They arrive unchanged, and no descriptor is leaked.
func FuzzNotes(f *testing.F) {
	for kind := noteListen; kind <= noteUnlistened; kind++ {
		f.Add(append([]byte{2, noteSize}, note{kind: kind, listener: 1, client: 1, pending: 1}.encode()...), true)
		f.Add(append([]byte{1, noteSize}, note{kind: kind, listener: 1, client: 1, pending: 1}.encode()...), false)
	}
	twice := append([]byte{2, noteSize}, note{kind: noteClient, client: 7}.encode()...)
	f.Add(append(bytes.Clone(twice), twice...), true)
	f.Fuzz(func(t *testing.T, data []byte, toBroker bool) {
		before := openNow(t)
		own, other := connectedSockets(t)
		broker := &Broker{listeners: map[uint32]*brokeredListener{}, clients: map[uint64]*brokeredClient{}}
		process := &brokerProcess{listeners: map[uint32]*acceptor{}}
		for _, m := range parsePeer(data) {
			fds := m.eventfds()
			if _, _, err := other.WriteMsgUnix(m.body, rightsOf(fds), nil); err != nil {
				t.Fatal(err)
			}
			n, received, err := receiveNote(own)
			closeAll(fds)
			if (err == nil) != (len(m.body) == noteSize) ||
				err == nil && (!bytes.Equal(n.encode(), m.body) || len(received) != len(fds)) {
				t.Fatalf("sent %x with %d descriptors, received %+v with %d, %v", m.body, len(fds), n, len(received),
					err)
			}
			switch {
			case err != nil:
			case toBroker:
				broker.handle(n, received)
			default:
				process.handle(n, received)
			}
		}
		broker.forget()
		_ = own.Close()
		_ = other.Close()
		checkLeaks(t, before)
	})
}

// FuzzServersRings lets a client use its rings with anything in them that a server can write: it must stay within the
// region.
func FuzzServersRings(f *testing.F) {
	f.Add(make([]byte, 64), uint16(4), uint16(4))
	f.Add(bytes.Repeat([]byte{1, 0, 0, 0, 64, 0, 0, 0}, 16), uint16(8), uint16(0xffff))
	f.Add(bytes.Repeat([]byte{0, 0, 9, 0, 0xff, 0xff, 0xff, 0xff}, 16), uint16(1), uint16(2))
	f.Fuzz(func(t *testing.T, data []byte, freed, filled uint16) {
		l := layout{toServer: 1, toClient: 1, log2: 3, bufferSize: 128}
		const canary = 1 << 12
		words := make([]uint64, (l.size()+2*canary)/8+1)
		all := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), len(words)*8)
		client := newConn(&control{socket: noSocket()})
		client.memory.regions = []region{{base: unsafe.Pointer(unsafe.SliceData(all[canary:])), size: l.size()}}
		l.addQueues(client, []int{-1, -1}, 5000)
		for i, r := range []ring{client.tx[0].ring, client.rx[0].ring} {
			copy(unsafe.Slice((*byte)(r.slots), int(r.size)*slotSize), data[i*len(data)/2:])
		}
		client.tx[0].ring.setTail(freed)
		client.rx[0].ring.setTail(filled)
		client.rx[0].Peek(make([]Packet, 2))
		client.rx[0].Receive(buffers(8))
		client.tx[0].Reserve(100)
		client.tx[0].Commit(90)
		for _, size := range []int{1, 128, 129, 1024, 1025} {
			client.tx[0].Send(packets(1, size))
		}
		outside := append(bytes.Clone(all[:canary]), all[canary+l.size():]...)
		if len(bytes.Trim(outside, "\x00")) != 0 {
			t.Error("wrote beyond the region")
		}
	})
}

// peerMessage is a message of a fuzzed peer: a byte for the descriptors, a byte for the size, and that number of bytes.
type peerMessage struct {
	kinds byte
	body  []byte
}

// parsePeer parses as many messages as fit into a socket's buffer.
func parsePeer(data []byte) (all []peerMessage) {
	for len(data) >= 2 && len(all) < 40 {
		size := min(int(data[1]), len(data)-2)
		all = append(all, peerMessage{data[0], data[2 : 2+size]})
		data = data[2+size:]
	}
	return all
}

// descriptors returns up to two descriptors of the kinds of descriptorFor, or ends of pipes.
func (m peerMessage) descriptors() (fds []int) {
	for _, kind := range []byte{m.kinds & 7, m.kinds >> 4 & 7} {
		switch fd := descriptorFor(kind); {
		case kind == 0: // none
			if fd >= 0 {
				_ = unix.Close(fd)
			}
		case fd >= 0:
			fds = append(fds, fd)
		default:
			var ends [2]int
			if unix.Pipe2(ends[:], unix.O_CLOEXEC) == nil {
				_ = unix.Close(ends[1])
				fds = append(fds, ends[0])
			}
		}
	}
	return fds
}

// eventfds returns up to three eventfds.
func (m peerMessage) eventfds() (fds []int) {
	for range m.kinds & 3 {
		fds = append(fds, descriptorFor(0))
	}
	return fds
}

// relayedMessage is a message as a Broker receives it, with the kind of its descriptor.
type relayedMessage struct {
	body []byte
	kind string
}

// relayed is the model of a broker process's relay of a message.
func (m peerMessage) relayed() relayedMessage {
	fds := m.descriptors()
	defer closeAll(fds)
	switch {
	case len(m.body) != messageSize || len(fds) > 1:
		return relayedMessage{relayMalformed, ""}
	case len(fds) == 0:
		return relayedMessage{m.body, ""}
	case (m.kinds&7|m.kinds>>4&7)%4 == 3:
		return relayedMessage{m.body, "null"}
	case (m.kinds&7|m.kinds>>4&7)%4 == 0:
		return relayedMessage{m.body, "eventfd"}
	}
	return relayedMessage{m.body, "memory"}
}

// receiveRelayed reads a relay until the client has disconnected.
func receiveRelayed(t *testing.T, broker *packetSocket) (all []relayedMessage) {
	for {
		buf := make([]byte, messageSize+1)
		oob := make([]byte, controlRoom)
		n, oobn, _, _, err := broker.ReadMsgUnix(buf, oob)
		fds := descriptors(oob[:oobn])
		if err != nil || len(fds) > 1 {
			t.Fatalf("%d descriptors, %v: the end was not signalled", len(fds), err)
		}
		if n == len(relayGone) {
			if _, _, _, _, err := broker.ReadMsgUnix(buf, oob); !errors.Is(err, io.EOF) {
				t.Errorf("a message after the end: %v", err)
			}
			return all
		}
		m := relayedMessage{body: buf[:n]}
		for _, fd := range fds {
			m.kind = kindOf(t, fd)
		}
		closeAll(fds)
		all = append(all, m)
	}
}

func kindOf(t *testing.T, fd int) string {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		t.Fatal(err)
	}
	_, memory := sealsOf(fd)
	switch {
	case memory:
		return "memory"
	case isEventfd(fd):
		return "eventfd"
	case st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == unix.Mkdev(1, 3):
		return "null"
	}
	return "foreign"
}

// sendAll sends a peer's messages, without waiting, and returns the bodies.
func sendAll(t *testing.T, peer *packetSocket, data []byte) (bodies [][]byte) {
	for _, m := range parsePeer(data) {
		fds := m.descriptors()
		if _, _, err := peer.WriteMsgUnix(m.body, rightsOf(fds), nil); err != nil {
			t.Fatal(err)
		}
		closeAll(fds)
		bodies = append(bodies, m.body)
	}
	return bodies
}

// rightsOf returns nil for no descriptors: with a control message Go sends a byte instead of an empty message.
func rightsOf(fds []int) []byte {
	if len(fds) == 0 {
		return nil
	}
	return unix.UnixRights(fds...)
}

func connectedSockets(t *testing.T) (one, two *packetSocket) {
	one, fd, err := socketPair()
	if err == nil {
		two, err = socketOf(fd)
	}
	if err != nil {
		t.Fatal(err)
	}
	return one, two
}
