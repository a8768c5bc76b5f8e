package memif

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// liar is a client that can send any message.
type liar struct {
	t *testing.T
	control
	memory memory
	fds    []int
}

func newLiar(t *testing.T, path string) *liar {
	t.Helper()
	socket, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	l := &liar{t: t, control: control{socket: &packetSocket{UnixConn: socket}}}
	t.Cleanup(l.leave)
	return l
}

func (l *liar) leave() {
	_ = l.socket.Close()
	l.memory.unmap()
	closeAll(l.fds)
	l.fds = nil
}

// answer returns the next message's type, and its reason if it is a disconnect; "" at the end of the connection.
func (l *liar) answer() (messageType, string) {
	l.t.Helper()
	_ = l.socket.SetReadDeadline(time.Now().Add(timeout))
	m, _, err := l.receive()
	if err != nil {
		return 0, ""
	}
	return m.kind(), m.text(6, reasonSize)
}

// say sends messages without waiting for answers: the server may have disconnected.
func (l *liar) say(m *message, fd int) { _ = l.send(m, fd) }

func (l *liar) memfd(size int64, flags int) int {
	l.t.Helper()
	fd, err := unix.MemfdCreate("lies", flags|unix.MFD_CLOEXEC)
	if err != nil {
		l.t.Skipf("memfd with flags %#x: %v", flags, err)
	}
	l.fds = append(l.fds, fd)
	if err := unix.Ftruncate(fd, size); err != nil {
		l.t.Fatal(err)
	}
	return fd
}

func (l *liar) eventfd() int {
	l.t.Helper()
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		l.t.Fatal(err)
	}
	l.fds = append(l.fds, fd)
	return fd
}

// start returns a valid INIT for hostileConfig.
func start() initiation {
	return initiation{version: version, id: 1, secret: secretFieldOf([]byte(hostileConfig.Secret)), name: "liar"}
}

var hostileConfig = Config{ID: 1, Secret: "0123456789abcdefghijklm", RxQueues: 2, TxQueues: 2, RingSize: 1024}

// firstAnswer returns the first answer that is neither hello nor an acknowledgement.
func (l *liar) firstAnswer() (messageType, string) {
	l.t.Helper()
	for {
		kind, reason := l.answer()
		if kind != helloMessage && kind != ackMessage {
			return kind, reason
		}
	}
}

// honest makes a complete handshake with regions of fd and of further descriptors, and a ring in each direction in the
// first region.
func (l *liar) honest(fd int, size uint64, further ...int) {
	l.t.Helper()
	if err := l.memory.add(fd, size); err != nil {
		l.t.Fatal(err)
	}
	layout := hostileLayout
	layout.newRing(l.memory.regions[0].base, 0)
	layout.newRing(l.memory.regions[0].base, 1)
	l.say(start().encode(), -1)
	l.say(newRegion{size: size}.encode(), fd)
	for n, fd := range further {
		l.say(newRegion{index: uint16(n + 1), size: size}.encode(), fd)
	}
	l.say(newRing{toServer: true, log2: layout.log2}.encode(), l.eventfd())
	l.say(newRing{offset: uint32(layout.ringOffset(1)), log2: layout.log2}.encode(), l.eventfd())
	l.say(named(connectMessage, "lie"), -1)
}

var hostileLayout = layout{toServer: 1, toClient: 1, log2: 4, bufferSize: 2048}

func (l *liar) ring(i int) ring {
	return newRingAt(unsafe.Add(l.memory.regions[0].base, uintptr(hostileLayout.ringOffset(i))), hostileLayout.log2)
}

// openDescriptors returns the number of this process's descriptors.
func openDescriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// openNow returns the open descriptors of this process with what they refer to.
func openNow(t *testing.T) map[string]bool {
	t.Helper()
	const directory = "/proc/self/fd"
	all, err := os.ReadDir(directory)
	if err != nil {
		t.Fatal(err)
	}
	open := make(map[string]bool)
	for _, d := range all {
		target, err := os.Readlink(filepath.Join(directory, d.Name()))
		if err == nil { // else it was the descriptor of the directory, or is closed by now
			open[d.Name()+" "+target] = true
		}
	}
	return open
}

// checkLeaks fails the test if descriptors are open that were not before. Fewer of them are no fault: connections of
// earlier tests are closed asynchronously.
func checkLeaks(t *testing.T, before map[string]bool) {
	t.Helper()
	for d := range openNow(t) {
		if !before[d] {
			t.Error("left open: descriptor", d)
		}
	}
}

// settledDescriptors is openDescriptors once the number has not changed for some time: ended connections are closed
// asynchronously.
func settledDescriptors(t *testing.T) int {
	t.Helper()
	before := openDescriptors(t)
	eventually(t, "the number of descriptors is stable", func() bool {
		<-time.After(50 * time.Millisecond)
		last := before
		before = openDescriptors(t)
		return before == last
	})
	return before
}

// mappings returns the number of mapped regions of the tests' clients.
func mappings(t *testing.T) int {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for i := 0; i+len("/memfd:lies") <= len(maps); i++ {
		if string(maps[i:i+len("/memfd:lies")]) == "/memfd:lies" {
			n++
		}
	}
	return n
}

// eventually waits for a condition that other goroutines bring about.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(timeout); !holds(); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s: not within %s", what, timeout)
		}
	}
}

// stillServes fails the test unless a valid client can use the interface.
func (l *lab) stillServes(t *testing.T) {
	t.Helper()
	var client *Conn
	eventually(t, "a valid client connects", func() bool {
		var err error
		client, err = Connect(t.Context(), ClientConfig{Socket: l.Path(), ID: 1, Secret: hostileConfig.Secret})
		if err != nil && !errors.As(err, new(*DisconnectError)) {
			t.Fatal(err)
		}
		return err == nil
	})
	client.Close()
	_ = await(t, client.Gone(), "end of the connection")
	client.Release()
	await(t, l.connected, "connection")
	_ = await(t, l.disconnected, "end of the connection")
}
