package forward_test

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/vswitch/forward"
)

// maliciousClient is a memif client of raw messages. It has one region with a ring in each direction, at 0 and at half.
type maliciousClient struct {
	socket *net.UnixConn
	random *rand.Rand
	memory []byte
	fds    []int
	size   uint64 // announced; the memory may be shorter
}

const (
	maliciousRing = 64 // slots
	maliciousHalf = 64 << 10
	maliciousSize = 2 * maliciousHalf
)

func dialMalicious(t *testing.T, path string, seed uint64) *maliciousClient {
	t.Helper()
	socket, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	if err := socket.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return &maliciousClient{socket: socket, random: rand.New(rand.NewPCG(seed, 1)), size: maliciousSize}
}

// memfd creates the memory; unsealable memory can be truncated later.
func (l *maliciousClient) memfd(t *testing.T, unsealable bool) int {
	t.Helper()
	flags := unix.MFD_CLOEXEC
	if !unsealable {
		flags |= unix.MFD_ALLOW_SEALING
	}
	fd, err := unix.MemfdCreate("memif", flags)
	if err != nil {
		t.Fatal(err)
	}
	l.fds = append(l.fds, fd)
	if err := unix.Ftruncate(fd, maliciousSize); err != nil {
		t.Fatal(err)
	}
	if l.memory, err = unix.Mmap(fd, 0, maliciousSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		t.Fatal(err)
	}
	for half := range 2 {
		binary.LittleEndian.PutUint32(l.memory[half*maliciousHalf:], 0x3E31F20)
	}
	return fd
}

// close may be called again.
func (l *maliciousClient) close() {
	_ = l.socket.Close()
	if l.memory != nil {
		_ = unix.Munmap(l.memory)
		l.memory = nil
	}
	for _, fd := range l.fds {
		_ = unix.Close(fd)
	}
	l.fds = nil
}

func (l *maliciousClient) say(kind uint16, fd int, fill func(b []byte)) {
	b := make([]byte, 128)
	binary.LittleEndian.PutUint16(b, kind)
	fill(b)
	var rights []byte
	if fd >= 0 {
		rights = unix.UnixRights(fd)
	}
	_, _, _ = l.socket.WriteMsgUnix(b, rights, nil)
}

// handshake sends all messages of a client; distort may change each one. It reports whether the server accepted.
func (l *maliciousClient) handshake(t *testing.T, fd int, distort func(step int, b []byte)) bool {
	t.Helper()
	l.say(3, -1, func(b []byte) {
		binary.LittleEndian.PutUint16(b[2:], 0x200)
		b[4] = 3
		copy(b[9:], "open sesame")
		distort(0, b)
	})
	l.say(4, fd, func(b []byte) {
		binary.LittleEndian.PutUint64(b[4:], l.size)
		distort(1, b)
	})
	for ring := range 2 {
		event, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
		if err != nil {
			t.Fatal(err)
		}
		l.fds = append(l.fds, event)
		l.say(5, event, func(b []byte) {
			b[2] = byte(1 - ring)
			binary.LittleEndian.PutUint32(b[8:], uint32(ring*maliciousHalf))
			b[12] = 6
			distort(2+ring, b)
		})
	}
	l.say(6, -1, func(b []byte) { distort(4, b) })
	return l.convinced()
}

func (l *maliciousClient) convinced() bool {
	b := make([]byte, 256)
	for {
		n, _, _, _, err := l.socket.ReadMsgUnix(b, nil)
		if err != nil || n < 2 {
			return false
		}
		switch binary.LittleEndian.Uint16(b) {
		case 7:
			return true
		case 8:
			return false
		}
	}
}

// scribble writes random descriptors, as a malicious or crashing client might, and announces some. It changes heads and
// tails only where that is detected at once.
func (l *maliciousClient) scribble(alsoIndexes bool) {
	at := l.random.IntN(2) * maliciousHalf
	head := l.memory[at+6:]
	switch n := l.random.IntN(6); {
	case n == 0 && alsoIndexes:
		binary.LittleEndian.PutUint16(head, uint16(l.random.Uint32()))
	case n == 1 && alsoIndexes:
		binary.LittleEndian.PutUint16(l.memory[at+64:], uint16(l.random.Uint32()))
	case n < 3:
		if at == 0 && l.drained(2*time.Millisecond) {
			binary.LittleEndian.PutUint16(head, binary.LittleEndian.Uint16(head)+uint16(l.random.IntN(8)))
		}
	default:
		slot := l.memory[at+128+16*l.random.IntN(maliciousRing):]
		binary.LittleEndian.PutUint64(slot, l.random.Uint64()>>uint(l.random.IntN(64)))
		binary.LittleEndian.PutUint64(slot[8:], l.random.Uint64()>>uint(l.random.IntN(64)))
	}
}

// ring interrupts the server, which need not poll idle memory.
func (l *maliciousClient) ring() {
	for _, fd := range l.fds[1:] { // after the memory
		_, _ = unix.Write(fd, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
}

// drained waits until the server has processed everything.
func (l *maliciousClient) drained(patience time.Duration) bool {
	for begin := time.Now(); time.Since(begin) < patience; runtime.Gosched() {
		if binary.LittleEndian.Uint16(l.memory[64:]) == binary.LittleEndian.Uint16(l.memory[6:]) {
			return true
		}
	}
	return false
}

// run is the session of one client.
func (l *maliciousClient) run(t *testing.T) {
	t.Helper()
	defer l.close()
	unsealable := l.random.IntN(2) == 0
	fd := l.memfd(t, unsealable)
	wrong := -1
	if l.random.IntN(3) == 0 {
		wrong = l.random.IntN(5)
	}
	if l.random.IntN(8) == 0 {
		l.size = l.random.Uint64() >> uint(l.random.IntN(64))
	}
	if !l.handshake(t, fd, func(step int, b []byte) {
		if step == wrong {
			b[l.random.IntN(64)] ^= 1 << l.random.IntN(8)
		}
	}) {
		return
	}
	alsoIndexes := l.random.IntN(2) == 0
	for range 40 {
		l.scribble(alsoIndexes)
	}
	l.ring()
	if l.random.IntN(2) == 0 {
		l.drained(20 * time.Millisecond)
	}
	if l.random.IntN(2) == 0 && canCutMemory && unix.Ftruncate(fd, 0) == nil {
		// The pages are gone. Only a server that sealed them or expects that is safe; it detects the loss when it
		// polls.
		_ = l.socket.SetDeadline(time.Now().Add(100 * time.Millisecond))
		_ = l.convinced()
		return
	}
	if l.random.IntN(2) == 0 {
		l.say(uint16(l.random.IntN(10)), -1, func([]byte) {})
	}
}

// Whatever a client sends and writes, other clients lose nothing, and all resources are released.
func TestMaliciousClientsDoNotDisturbOthers(t *testing.T) {
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
	if canCutMemory {
		l.cut(t)
	}
	// A loaded machine needs more sessions until one is detected in time.
	sessions := uint64(0)
	found := detectedErrors{}
	for ; sessions < 150 || !found.complete() && sessions < 3000; sessions++ {
		dialMalicious(t, l.socket, sessions).run(t)
		found.collect(l)
	}
	if sent := stop(); sent == 0 {
		t.Error("nothing was sent")
	}
	if t.Logf("%d sessions, detected: %v; drops: %v", sessions, found, l.engine.Drops()); !found.complete() {
		t.Error("not all kinds of errors were detected")
	}
	l.freed(t, 3)
	before.wantReleased(t)
}

// cut truncates memory that the server uses and could not seal, which must end the connection.
func (l *memifLab) cut(t *testing.T) {
	t.Helper()
	var c *maliciousClient
	var fd int
	eventually(t, "an honest client is let in", func() bool {
		if c != nil {
			c.close()
		}
		c = dialMalicious(t, l.socket, 0)
		t.Cleanup(c.close)
		fd = c.memfd(t, true)
		return c.handshake(t, fd, func(int, []byte) {})
	})
	if err := unix.Ftruncate(fd, 0); err != nil {
		t.Fatal(err)
	}
	c.ring()
	if c.convinced() {
		t.Error("the connection still works")
	}
	c.close()
}

// detectedErrors counts the detected errors by kind.
type detectedErrors map[error]int

// errDescriptor stands for invalid descriptors, which drop only their packet.
var errDescriptor = errors.New("bad descriptor")

// collect adds the errors since the last call.
func (found detectedErrors) collect(l *memifLab) {
	found[errDescriptor] = int(l.engine.Drops()["memif-input/bad_desc"])
	for len(l.seen) > 0 {
		ev := <-l.seen
		for _, e := range []error{memif.ErrIndex, memif.ErrBuffer, memif.ErrFault} {
			if ev.Kind == forward.PeerGone && errors.Is(ev.Err, e) {
				found[e]++
			}
		}
	}
}

// complete reports whether errors of all kinds were detected.
func (found detectedErrors) complete() bool {
	return found[errDescriptor] > 0 && found[memif.ErrIndex] > 0 && (found[memif.ErrFault] > 0 || !canCutMemory)
}

// warmUp makes the runtime and the library open their permanent descriptors.
func (l *memifLab) warmUp(t *testing.T, a, b *memif.Conn) {
	t.Helper()
	for seed := range uint64(20) {
		dialMalicious(t, l.socket, seed).run(t)
	}
	a.RxQueues()[0].Arm()
	b.TxQueues()[0].Send([][]byte{numberedFrame(2, 9, 0, 64)})
	eventually(t, "a frame that is announced", func() bool {
		return a.RxQueues()[0].Receive([][]byte{make([]byte, 64)}) == 1
	})
	a.RxQueues()[0].Disarm()
}

// freed waits until another client can connect and has disconnected.
func (l *memifLab) freed(t *testing.T, id uint32) {
	t.Helper()
	for len(l.seen) > 0 {
		<-l.seen
	}
	c := l.connect(id, func(c *memif.ClientConfig) { c.Timeout = time.Second })
	c.Release()
	eventually(t, "the last client has gone", func() bool {
		select {
		case ev := <-l.seen:
			return ev.Interface == id && ev.Kind == forward.PeerGone
		default:
			return false
		}
	})
}
