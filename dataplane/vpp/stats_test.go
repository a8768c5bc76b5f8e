package vpp

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
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
	server := weftstats.Server{
		Log:      slog.New(slog.DiscardHandler),
		Interval: time.Millisecond,
		Source: func() weftstats.Reading {
			if once {
				select {
				case <-published:
				default:
					close(published) // the first reading is in the segment
				}
			}
			once = true
			return reading
		},
	}
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
		{
			Index:    3,
			Name:     "memif1/0",
			Rx:       weftstats.Combined{Packets: 5, Bytes: 320},
			Tx:       weftstats.Combined{Packets: 7, Bytes: 640},
			Drops:    2,
			TxErrors: 1,
		},
		{Index: 4, Name: "tap4"},
	},
	Errors: []weftstats.Error{
		{Name: "interface-output/interface is down", Count: 1}, {Name: "ip4-input/time_expired", Count: 0},
		{Name: "l2-fwd/L2 forward misses", Count: 12}, {Name: "memif1/0-tx/no_free_slots", Count: 4}, {
			Name:  "tap4-output/interface is down",
			Count: 2,
		},
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
		errors := []ErrorCount{
			{"interface-output", "interface is down", 3}, {"l2-fwd", "L2 forward misses", 12},
			{"memif-tx", "no_free_slots", 4},
		}
		if !slices.Equal(c.errors, errors) {
			t.Errorf("%+v, want %+v", c.errors, errors)
		}
	}
}

func TestCountersAreThoseOfTheRestartedDataplane(t *testing.T) {
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
	c, err := l.client.Statistics().Counters(t.Context())
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

func TestInvalidStatsSocketsAreErrors(t *testing.T) {
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
		l, err := net.Listen("unixpacket", socket) // connections are never accepted
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
