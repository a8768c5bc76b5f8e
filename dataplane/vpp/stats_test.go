package vpp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	weftstats "github.com/weftnet/weft/vswitch/stats"
	"github.com/weftnet/weft/wire"
)

// newSource serves a reading in a segment as weft-vswitch writes it, until stop is called.
func newSource(t testing.TB, socket string, reading weftstats.Reading) (stop func()) {
	t.Helper()
	l, err := net.Listen("unixpacket", socket)
	if err != nil {
		t.Fatal(err)
	}
	published := make(chan struct{})
	once := false
	server := weftstats.Server{Log: slog.New(slog.DiscardHandler), Interval: time.Millisecond, Source: func() weftstats.Reading {
		if once {
			select {
			case <-published:
			default:
				close(published) // the first reading is in the segment
			}
		}
		once = true
		return reading
	}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, l) }()
	<-published
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// newStats makes a reader.
func newStats(t testing.TB, socket string) *stats {
	t.Helper()
	s := &stats{socket: socket, dir: t.TempDir()}
	t.Cleanup(s.close)
	return s
}

// shortDir is a directory for sockets, whose paths have at most 107 bytes.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "stats")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

var oneInterface = weftstats.Reading{Workers: 2,
	Interfaces: []weftstats.Interface{
		{Index: 3, Name: "memif1/0", Rx: weftstats.Combined{Packets: 5, Bytes: 320}, Tx: weftstats.Combined{Packets: 7, Bytes: 640}, Drops: 2, TxErrors: 1},
		{Index: 4, Name: "tap4"},
	},
	Errors: []weftstats.Error{
		{Name: "interface-output/interface is down", Count: 1}, {Name: "ip4-input/time_expired", Count: 0},
		{Name: "l2-fwd/L2 forward misses", Count: 12}, {Name: "memif1/0-tx/no_free_slots", Count: 4}, {Name: "tap4-output/interface is down", Count: 2},
	},
}

func TestCountersAreReadByNameAndIndex(t *testing.T) {
	socket := filepath.Join(shortDir(t), "stats.sock")
	defer newSource(t, socket, oneInterface)()
	s := newStats(t, socket)
	for range 3 { // the copy is used again
		c, err := s.read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want := Traffic{RxPackets: 5, RxBytes: 320, TxPackets: 7, TxBytes: 640, RxDrops: 2, TxDrops: 1}
		if have := c.traffic(3, "memif1/0"); have != want {
			t.Errorf("%+v, want %+v", have, want)
		}
		for _, stranger := range []Traffic{c.traffic(3, "memif9/9"), c.traffic(2, "deleted?"), c.traffic(99, "tap4")} {
			if stranger != (Traffic{}) {
				t.Errorf("counters of another interface: %+v", stranger)
			}
		}
		errors := []ErrorCount{{"interface-output", "interface is down", 3}, {"l2-fwd", "L2 forward misses", 12}, {"memif-tx", "no_free_slots", 4}}
		if !slices.Equal(c.errors, errors) {
			t.Errorf("%+v, want %+v", c.errors, errors)
		}
	}
}

func TestCountersOfARestartedDataplaneAreItsOwn(t *testing.T) {
	socket := filepath.Join(shortDir(t), "stats.sock")
	stop := newSource(t, socket, oneInterface)
	s := newStats(t, socket)
	if c, err := s.read(t.Context()); err != nil || c.traffic(4, "tap4") != (Traffic{}) {
		t.Fatal(c, err)
	}
	stop()
	if _, err := s.read(t.Context()); !errors.Is(err, unix.ENOENT) {
		t.Errorf("without a dataplane: %v", err)
	}
	second := weftstats.Reading{Workers: 1, Interfaces: []weftstats.Interface{{Index: 4, Name: "tap4", Drops: 9}}}
	defer newSource(t, socket, second)()
	c, err := s.read(t.Context())
	if err != nil || c.traffic(4, "tap4") != (Traffic{RxDrops: 9}) || c.traffic(3, "memif1/0") != (Traffic{}) {
		t.Errorf("after the restart: %+v, %v", c, err)
	}
	if left, err := os.ReadDir(s.dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestCountersAreThoseOfOurInterfaces(t *testing.T) {
	l := newLab(t)
	l.mustCommit(object{wire.InterfaceKey("lo1"), wire.Interface{Type: wire.TypeLoopback, MTU: 1500, Up: true}})
	c, err := l.client.Counters(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, there := c.Interfaces["lo1"]; !there || len(c.Interfaces) != 1 {
		t.Errorf("%+v, want those of lo1 alone", c.Interfaces)
	}
}

func TestSplitError(t *testing.T) {
	interfaces := map[string]bool{"memif0/0": true, "host-eth0": true, "tap4096": true, "vxlan_tunnel7": true}
	for path, want := range map[string][2]string{
		"ip4-input/time_expired":                 {"ip4-input", "time_expired"},
		"memif0/0-tx/no_free_slots":              {"memif-tx", "no_free_slots"},
		"memif0/0-output/interface is down":      {"interface-output", "interface is down"},
		"host-eth0-tx/tx sendto fatal failure":   {"host-tx", "tx sendto fatal failure"},
		"tap4096-tx/no free tx slots":            {"tap-tx", "no free tx slots"},
		"vxlan_tunnel7-tx/x":                     {"vxlan_tunnel-tx", "x"},
		"ip6-add-hop-by-hop/Pkts w/ added":       {"ip6-add-hop-by-hop", "Pkts w/ added"},
		"stranger-tx/no interface":               {"stranger-tx", "no interface"},
		"l2-output/L2 split horizon drops":       {"l2-output", "L2 split horizon drops"},
		"a node without a reason is no accident": {"a node without a reason is no accident", ""},
	} {
		if node, reason := splitError(path, interfaces); [2]string{node, reason} != want {
			t.Errorf("%s: %q, %q", path, node, reason)
		}
	}
}

// snapshot is a segment as weft-vswitch writes it, cut off behind what it uses.
func snapshot(t testing.TB) []byte {
	t.Helper()
	socket := filepath.Join(shortDir(t), "stats.sock")
	defer newSource(t, socket, oneInterface)()
	segment, err := openSegment(context.Background(), socket)
	if err != nil {
		t.Fatal(err)
	}
	defer segment.Close()
	whole := make([]byte, 32<<20)
	if _, err := segment.ReadAt(whole, 0); err != nil {
		t.Fatal(err)
	}
	at := binary.LittleEndian.Uint64(whole[segmentDirectory:]) - binary.LittleEndian.Uint64(whole[segmentBase:])
	begin := int(at) &^ 4095 // the region that is used: moved to the front, behind the header
	mem := slices.Concat(whole[:4096], whole[begin:begin+16<<10])
	binary.LittleEndian.PutUint64(mem[segmentBase:], binary.LittleEndian.Uint64(mem[segmentBase:])+uint64(begin)-4096)
	if err := checkSegment(mem); err != nil {
		t.Fatal("the segment itself:", err)
	}
	return mem
}

// reread lets govpp's client read what the check accepted. It ends the process where the check is wrong.
func reread(t testing.TB, m *mirror, mem []byte) (*counted, error) {
	t.Helper()
	copy(m.mem, mem)
	binary.LittleEndian.PutUint64(m.mem[segmentErrors:], 0)
	binary.LittleEndian.PutUint64(m.mem[segmentBusy:], 0)
	if err := checkSegment(m.mem); err != nil {
		return nil, err
	}
	entries, err := m.read() // all entries, more than are ever asked for
	if err != nil {
		return nil, err
	}
	return newCounted(entries), nil
}

func newTestMirror(t testing.TB, size int) *mirror {
	t.Helper()
	m, err := newMirror(unix.Stat_t{Size: int64(size)}, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.close)
	return m
}

// entryOf finds an entry by name.
func entryOf(t testing.TB, mem []byte, name string) []byte {
	t.Helper()
	at := strings.Index(string(mem), "\x00"+name+"\x00")
	if at < 0 {
		t.Fatal("no entry", name)
	}
	return mem[at+1-segmentEntryName:][:segmentEntry]
}

func TestInvalidSegmentsAreRefused(t *testing.T) {
	put32, put64 := binary.LittleEndian.PutUint32, binary.LittleEndian.PutUint64
	pointed := func(mem []byte, pointer []byte) int {
		return int(binary.LittleEndian.Uint64(pointer) - binary.LittleEndian.Uint64(mem[segmentBase:]))
	}
	for _, c := range []struct {
		rule  string
		spoil func(t *testing.T, mem []byte)
	}{
		{"directory longer than the segment", func(_ *testing.T, mem []byte) { put32(mem[pointed(mem, mem[segmentDirectory:])-8:], 1<<31) }},
		{"no directory", func(_ *testing.T, mem []byte) { put64(mem[segmentDirectory:], 0) }},
		{"directory in the header", func(_ *testing.T, mem []byte) {
			put64(mem[segmentDirectory:], binary.LittleEndian.Uint64(mem[segmentBase:])+1)
		}},
		{"addresses in Go's heap", func(_ *testing.T, mem []byte) {
			at := pointed(mem, mem[segmentDirectory:])
			put64(mem[segmentBase:], 0xc0<<32)
			put64(mem[segmentDirectory:], 0xc0<<32+uint64(at))
		}},
		{"more threads than the segment has bytes", func(t *testing.T, mem []byte) {
			put32(mem[pointed(mem, entryOf(t, mem, "/if/rx")[segmentEntryValue:])-8:], ^uint32(0))
		}},
		{"more counters than the segment has bytes", func(t *testing.T, mem []byte) {
			threads := pointed(mem, entryOf(t, mem, "/if/drops")[segmentEntryValue:])
			put32(mem[pointed(mem, mem[threads:])-8:], ^uint32(0))
		}},
		{"longer name than the segment", func(t *testing.T, mem []byte) {
			names := pointed(mem, entryOf(t, mem, "/if/names")[segmentEntryValue:])
			put32(mem[pointed(mem, mem[names+3*8:])-8:], ^uint32(0))
		}},
		{"link behind the directory", func(t *testing.T, mem []byte) {
			put32(entryOf(t, mem, "/err/ip4-input/time_expired")[segmentEntryValue:], 1<<30)
		}},
		{"link to itself for ever", func(t *testing.T, mem []byte) {
			e := entryOf(t, mem, "/err/ip4-input/time_expired")
			put32(e[segmentEntryValue:], uint32((len(mem)-len(e))/segmentEntry))
			put32(e[segmentEntryValue+4:], ^uint32(0))
		}},
		{"all entries share one large vector", func(_ *testing.T, mem []byte) {
			put32(mem[4096+8:], 500) // a vector of pointers to itself
			for i := range 500 {
				put64(mem[4096+16+i*8:], binary.LittleEndian.Uint64(mem[segmentBase:])+4096+16)
			}
			put64(mem[segmentDirectory:], binary.LittleEndian.Uint64(mem[segmentBase:])+12<<10)
			put32(mem[12<<10-8:], 20)
			for i := range 20 {
				e := mem[12<<10+i*segmentEntry:][:segmentEntry]
				clear(e)
				put32(e, segmentCombined)
				put64(e[segmentEntryValue:], binary.LittleEndian.Uint64(mem[segmentBase:])+4096+16)
				copy(e[segmentEntryName:], fmt.Sprintf("/if/%d", i))
			}
		}},
	} {
		t.Run(c.rule, func(t *testing.T) {
			mem := snapshot(t)
			c.spoil(t, mem)
			if _, err := reread(t, newTestMirror(t, len(mem)), mem); !errors.Is(err, errSegment) {
				t.Errorf("accepted: %v", err)
			}
		})
	}
}

// FuzzSegment spoils a segment: either the check refuses it, or govpp's client reads it and the process lives.
func FuzzSegment(f *testing.F) {
	mem := snapshot(f)
	m := newTestMirror(f, len(mem))
	f.Add([]byte{0, 32, 0xff, 1})
	f.Add(slices.Repeat([]byte{0x10, 0x20, 0x80, 4}, 8))
	f.Fuzz(func(t *testing.T, edits []byte) {
		spoiled := slices.Clone(mem)
		for ; len(edits) >= 4; edits = edits[4:] {
			at := (int(edits[0])<<8 | int(edits[1])) % (len(mem) - 8)
			for i := range 1 + edits[3]%8 {
				spoiled[at+int(i)] = edits[2] // a byte, or all of a number
			}
		}
		_, _ = reread(t, m, spoiled)
	})
}

func TestRandomlySpoiledSegmentsDoNoHarm(t *testing.T) {
	mem := snapshot(t)
	m := newTestMirror(t, len(mem))
	refused := 0
	const tries = 3000
	for try := range tries {
		spoiled := slices.Clone(mem)
		random := rand.New(rand.NewPCG(1, uint64(try)))
		for range 1 + random.IntN(4) {
			at := random.IntN(6<<10/8) * 8 // the header, and then the directory with its vectors
			if at >= 64 {
				at += 4096 - 64
			}
			switch random.IntN(3) {
			case 0:
				binary.LittleEndian.PutUint32(spoiled[at:], random.Uint32())
			case 1:
				binary.LittleEndian.PutUint64(spoiled[at:], binary.LittleEndian.Uint64(mem[segmentBase:])+uint64(random.IntN(len(mem)+64)))
			default:
				spoiled[at] ^= 1 << random.IntN(8)
			}
		}
		if _, err := reread(t, m, spoiled); err != nil {
			refused++
		}
	}
	if refused == 0 || refused == tries {
		t.Errorf("%d of %d refused", refused, tries)
	}
	t.Logf("%d of %d refused", refused, tries)
}

// offer gives a client one message, and a descriptor if there is one.
func offer(t *testing.T, fd int) (socket string) {
	t.Helper()
	socket = filepath.Join(shortDir(t), "stats.sock")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Net: "unixpacket", Name: socket})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.AcceptUnix()
			if err != nil {
				return
			}
			var rights []byte
			if fd >= 0 {
				rights = unix.UnixRights(fd)
			}
			_, _, _ = conn.WriteMsgUnix([]byte{0}, rights, nil)
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return socket
}

func memfd(t *testing.T, content []byte, size int64) int {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if _, err := unix.Pwrite(fd, content, 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.Ftruncate(fd, size); err != nil {
		t.Fatal(err)
	}
	return fd
}

func TestStrangeStatsSocketsAreErrors(t *testing.T) {
	good := snapshot(t)
	with := func(at int, value uint64) []byte {
		b := slices.Clone(good)
		binary.LittleEndian.PutUint64(b[at:], value)
		return b
	}
	for rule, fd := range map[string]int{
		"nothing sent":      -1,
		"empty segment":     memfd(t, nil, 0),
		"tiny segment":      memfd(t, nil, 10),
		"zeros":             memfd(t, nil, 1<<20),
		"huge segment":      memfd(t, good, 1<<40),
		"another version":   memfd(t, with(0, 1), int64(len(good))),
		"for ever changing": memfd(t, with(segmentBusy, 1), int64(len(good))),
		"cut off":           memfd(t, good, 5000),
	} {
		t.Run(rule, func(t *testing.T) {
			if _, err := newStats(t, offer(t, fd)).read(t.Context()); err == nil {
				t.Error("accepted")
			}
		})
	}
	t.Run("an unspoiled one is read", func(t *testing.T) {
		c, err := newStats(t, offer(t, memfd(t, good, int64(len(good))))).read(t.Context())
		if err != nil || c.traffic(3, "memif1/0").RxPackets != 5 {
			t.Error(c, err)
		}
	})
	t.Run("one that never answers", func(t *testing.T) {
		socket := filepath.Join(shortDir(t), "stats.sock")
		l, err := net.Listen("unixpacket", socket) // nobody accepts
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err := newStats(t, socket).read(ctx); err == nil {
			t.Error("accepted")
		}
	})
}

func TestHolesAreNotCopied(t *testing.T) {
	good := snapshot(t)
	size := int64(512 << 20)
	s := newStats(t, offer(t, memfd(t, good, size)))
	if _, err := s.read(t.Context()); err != nil {
		t.Fatal(err)
	}
	var stat unix.Stat_t
	if err := unix.Fstat(int(s.mirror.private.Fd()), &stat); err != nil {
		t.Fatal(err)
	}
	if used := stat.Blocks * 512; stat.Size != size || used > 1<<20 {
		t.Errorf("the copy of %d bytes takes %d", stat.Size, used)
	}
}
