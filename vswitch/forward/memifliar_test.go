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

// liar is a memif client of raw messages. It has one region with a ring in each direction, at 0 and at half.
type liar struct {
	socket *net.UnixConn
	random *rand.Rand
	memory []byte
	fds    []int
	size   uint64 // that it tells; the memory may be shorter
}

const (
	liarRing = 64 // slots
	liarHalf = 64 << 10
	liarSize = 2 * liarHalf
)

func dialLiar(t *testing.T, path string, seed uint64) *liar {
	t.Helper()
	socket, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	if err := socket.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return &liar{socket: socket, random: rand.New(rand.NewPCG(seed, 1)), size: liarSize}
}

// memfd makes the memory; unsealable memory can be cut later.
func (l *liar) memfd(t *testing.T, unsealable bool) int {
	t.Helper()
	flags := unix.MFD_CLOEXEC
	if !unsealable {
		flags |= unix.MFD_ALLOW_SEALING
	}
	fd, err := unix.MemfdCreate("liar", flags)
	if err != nil {
		t.Fatal(err)
	}
	l.fds = append(l.fds, fd)
	if err := unix.Ftruncate(fd, liarSize); err != nil {
		t.Fatal(err)
	}
	if l.memory, err = unix.Mmap(fd, 0, liarSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		t.Fatal(err)
	}
	for half := range 2 {
		binary.LittleEndian.PutUint32(l.memory[half*liarHalf:], 0x3E31F20)
	}
	return fd
}

// leave may be called again.
func (l *liar) leave() {
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

func (l *liar) say(kind uint16, fd int, fill func(b []byte)) {
	b := make([]byte, 128)
	binary.LittleEndian.PutUint16(b, kind)
	fill(b)
	var rights []byte
	if fd >= 0 {
		rights = unix.UnixRights(fd)
	}
	_, _, _ = l.socket.WriteMsgUnix(b, rights, nil)
}

// handshake says everything a client says; distort may change each message. It returns whether the server was convinced.
func (l *liar) handshake(t *testing.T, fd int, distort func(step int, b []byte)) bool {
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
			binary.LittleEndian.PutUint32(b[8:], uint32(ring*liarHalf))
			b[12] = 6
			distort(2+ring, b)
		})
	}
	l.say(6, -1, func(b []byte) { distort(4, b) })
	return l.convinced()
}

func (l *liar) convinced() bool {
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

// scribble writes over descriptors what a liar or a dying program might, and announces some; over heads and tails only where
// it may be found out at once.
func (l *liar) scribble(alsoIndexes bool) {
	at := l.random.IntN(2) * liarHalf
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
		slot := l.memory[at+128+16*l.random.IntN(liarRing):]
		binary.LittleEndian.PutUint64(slot, l.random.Uint64()>>uint(l.random.IntN(64)))
		binary.LittleEndian.PutUint64(slot[8:], l.random.Uint64()>>uint(l.random.IntN(64)))
	}
}

// ring wakes the server, which need not look at memory that nobody rings for.
func (l *liar) ring() {
	for _, fd := range l.fds[1:] { // after the memory
		_, _ = unix.Write(fd, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
}

// drained waits for the server to have looked at everything.
func (l *liar) drained(patience time.Duration) bool {
	for begin := time.Now(); time.Since(begin) < patience; runtime.Gosched() {
		if binary.LittleEndian.Uint16(l.memory[64:]) == binary.LittleEndian.Uint16(l.memory[6:]) {
			return true
		}
	}
	return false
}

// lie is one client's life.
func (l *liar) lie(t *testing.T) {
	t.Helper()
	defer l.leave()
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
	if l.random.IntN(2) == 0 && memoryMayGo && unix.Ftruncate(fd, 0) == nil {
		// The pages are gone. Only who sealed them is safe, or who expects it; the server finds out when it looks.
		_ = l.socket.SetDeadline(time.Now().Add(100 * time.Millisecond))
		_ = l.convinced()
		return
	}
	if l.random.IntN(2) == 0 {
		l.say(uint16(l.random.IntN(10)), -1, func([]byte) {})
	}
}

// Whatever a client says and writes, the others lose nothing, and nothing is left of it.
func TestLyingClientsCostNobodyElse(t *testing.T) {
	l := newMemifLab(t)
	l.serve(3)
	a, b := l.connect(1), l.connect(2)
	defer a.Release()
	defer b.Release()
	l.warmUp(t, a, b)
	l.freed(t, 3)
	before := settled(t)
	stop := l.stream(a, b, [2]byte{1, 2})
	if memoryMayGo {
		l.cut(t)
	}
	// On a machine with much else to do it takes more of them until one is looked at in time.
	lies := uint64(0)
	found := foundOut{}
	for ; lies < 150 || !found.ofAllKinds() && lies < 3000; lies++ {
		dialLiar(t, l.socket, lies).lie(t)
		found.listen(l)
	}
	if sent := stop(); sent == 0 {
		t.Error("nothing was sent")
	}
	if t.Logf("%d lies, found out: %v; drops: %v", lies, found, l.engine.Drops()); !found.ofAllKinds() {
		t.Error("not all kinds of lies were found out")
	}
	l.freed(t, 3)
	before.wantNoMore(t)
}

// cut takes memory away that the server uses and could not seal, which must end the connection.
func (l *memifLab) cut(t *testing.T) {
	t.Helper()
	var c *liar
	var fd int
	eventually(t, "an honest client is let in", func() bool {
		if c != nil {
			c.leave()
		}
		c = dialLiar(t, l.socket, 0)
		t.Cleanup(c.leave)
		fd = c.memfd(t, true)
		return c.handshake(t, fd, func(int, []byte) {})
	})
	if err := unix.Ftruncate(fd, 0); err != nil {
		t.Fatal(err)
	}
	c.ring()
	if c.convinced() {
		t.Error("the connection goes on")
	}
	c.leave()
}

// foundOut are the lies that were found out, by what they were.
type foundOut map[error]int

// errDescriptor stands for wrong descriptors, which cost their packet only.
var errDescriptor = errors.New("bad descriptor")

// listen adds what was found out since it was called last.
func (found foundOut) listen(l *memifLab) {
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

// ofAllKinds: lies of all kinds were found out.
func (found foundOut) ofAllKinds() bool {
	return found[errDescriptor] > 0 && found[memif.ErrIndex] > 0 && (found[memif.ErrFault] > 0 || !memoryMayGo)
}

// warmUp lets the runtime and the library open what they open once.
func (l *memifLab) warmUp(t *testing.T, a, b *memif.Conn) {
	t.Helper()
	for seed := range uint64(20) {
		dialLiar(t, l.socket, seed).lie(t)
	}
	a.RxQueues()[0].Arm()
	b.TxQueues()[0].Send([][]byte{numbered(2, 9, 0, 64)})
	eventually(t, "a frame that is announced", func() bool { return a.RxQueues()[0].Receive([][]byte{make([]byte, 64)}) == 1 })
	a.RxQueues()[0].Disarm()
}

// freed waits until an honest client can connect and has gone again.
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
