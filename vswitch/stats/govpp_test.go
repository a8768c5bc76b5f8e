package stats

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.fd.io/govpp/adapter"
	"go.fd.io/govpp/adapter/statsclient"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// serve sends a segment to all clients of a socket until the test ends.
func serve(t testing.TB, segment *Segment) (socket string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "stats") // short: a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	socket = filepath.Join(dir, "stats.sock")
	l, err := net.Listen("unixpacket", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Log: slog.New(slog.DiscardHandler)}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.accept(ctx, l, segment) }()
	t.Cleanup(func() {
		cancel()
		err := errors.Join(l.Close(), <-done, os.RemoveAll(dir))
		if err != nil {
			t.Error(err)
		}
	})
	return socket
}

func newSegment(t testing.TB) *Segment {
	t.Helper()
	s, err := NewSegment()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// connect connects govpp's client.
func connect(t testing.TB, socket string) *statsclient.StatsClient {
	t.Helper()
	c := statsclient.NewStatsClient(socket)
	if err := c.Connect(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Disconnect(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// dump returns all entries by name.
func dump(t rapid.TB, c *statsclient.StatsClient) map[string]adapter.Stat {
	t.Helper()
	entries, err := c.DumpStats()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]adapter.Stat{}
	for _, e := range entries {
		if _, twice := all[string(e.Name)]; twice {
			t.Fatalf("two entries are named %s", e.Name)
		}
		all[string(e.Name)] = e.Data
	}
	return all
}

// expected returns the entries that a client must find after a reading.
func expected(r *Reading, boot, beats uint64) map[string]adapter.Stat {
	all := map[string]adapter.Stat{
		"/sys/heartbeat": adapter.ScalarStat(beats), "/sys/last_stats_clear": adapter.ScalarStat(0),
		"/sys/boottime": adapter.ScalarStat(boot), "/sys/num_worker_threads": adapter.ScalarStat(r.Workers),
	}
	width := 0
	for _, i := range r.Interfaces {
		width = max(width, int(i.Index)+1)
	}
	names := adapter.NameStat{}
	for range width {
		names = append(names, adapter.Name("deleted"))
	}
	simple := map[string][]adapter.Counter{}
	for _, name := range []string{"drops", "punt", "ip4", "ip6", "tx-error"} {
		simple[name] = make([]adapter.Counter, width)
	}
	rx := make([]adapter.CombinedCounter, width)
	tx := make([]adapter.CombinedCounter, width)
	for _, i := range r.Interfaces {
		names[i.Index] = adapter.Name(i.Name)
		rx[i.Index] = adapter.CombinedCounter{i.Rx.Packets, i.Rx.Bytes}
		tx[i.Index] = adapter.CombinedCounter{i.Tx.Packets, i.Tx.Bytes}
		of := map[string]uint64{"drops": i.Drops, "punt": i.Punts, "ip4": i.IP4, "ip6": i.IP6, "tx-error": i.TxErrors}
		link := "/interfaces/" + strings.ReplaceAll(i.Name, "/", "_") + "/"
		for name, n := range of {
			simple[name][i.Index] = adapter.Counter(n)
			all[link+name] = adapter.SimpleCounterStat{{adapter.Counter(n)}}
		}
		all[link+"rx"] = adapter.CombinedCounterStat{{rx[i.Index]}}
		all[link+"tx"] = adapter.CombinedCounterStat{{tx[i.Index]}}
	}
	all["/if/names"] = names
	all["/if/rx"] = adapter.CombinedCounterStat{rx}
	all["/if/tx"] = adapter.CombinedCounterStat{tx}
	for name, vector := range simple {
		all["/if/"+name] = adapter.SimpleCounterStat{vector}
	}
	errors := []adapter.Counter{}
	for _, e := range r.Errors {
		errors = append(errors, adapter.Counter(e.Count))
		all["/err/"+e.Name] = adapter.SimpleCounterStat{{adapter.Counter(e.Count)}}
	}
	all["/node/errors"] = adapter.SimpleCounterStat{errors}
	var violations []adapter.CombinedCounter
	for _, v := range r.Violations {
		violations = append(violations, adapter.CombinedCounter{v.Packets, v.Bytes})
	}
	if len(violations) > 0 {
		all["/net/policer/violate"] = adapter.CombinedCounterStat{violations}
	}
	return all
}

func compare(t rapid.TB, have, want map[string]adapter.Stat) {
	t.Helper()
	for name, w := range want {
		if h, ok := have[name]; !ok || fmt.Sprint(h) != fmt.Sprint(w) {
			t.Errorf("%s: %v, want %v", name, h, w)
		}
	}
	for name := range have {
		if _, ok := want[name]; !ok {
			t.Errorf("%s: not published", name)
		}
	}
}

// readings draws readings of a vswitch.
func readings() *rapid.Generator[Reading] {
	return rapid.Custom(func(t *rapid.T) Reading {
		r := Reading{Workers: rapid.IntRange(1, 4).Draw(t, "workers")}
		for range rapid.IntRange(0, 3).Draw(t, "policers") {
			packets := rapid.Uint64().Draw(t, "packets")
			r.Violations = append(r.Violations, Combined{packets, rapid.Uint64().Draw(t, "bytes")})
		}
		indexes := rapid.SliceOfNDistinct(rapid.Uint32Range(0, 40), 0, 12, rapid.ID[uint32]).Draw(t, "indexes")
		for _, n := range indexes {
			kind := rapid.SampledFrom([]string{"tap%d", "memif7/%d", "host-veth%d"}).Draw(t, "kind")
			count := func(what string) uint64 { return rapid.Uint64().Draw(t, what) }
			r.Interfaces = append(r.Interfaces, Interface{
				Index:    n,
				Name:     fmt.Sprintf(kind, n),
				Rx:       Combined{count("rx"), count("rx bytes")},
				Tx:       Combined{count("tx"), count("tx bytes")},
				Drops:    count("drops"),
				Punts:    count("punts"),
				IP4:      count("ip4"),
				IP6:      count("ip6"),
				TxErrors: count("tx errors"),
			})
		}
		for _, name := range []string{"ip4-input/time_expired", "l2-fwd/L2 forward misses", "ethernet-input/no error"} {
			r.Errors = append(r.Errors, Error{name, rapid.Uint64().Draw(t, name)})
		}
		return r
	})
}

func TestGovppReadsPublishedCounters(t *testing.T) {
	segment := newSegment(t)
	client := connect(t, serve(t, segment))
	rapid.Check(t, func(t *rapid.T) {
		r := readings().Draw(t, "reading")
		for range rapid.IntRange(1, 3).Draw(t, "times") {
			if err := segment.Update(&r); err != nil {
				t.Fatal(err)
			}
			compare(t, dump(t, client), expected(&r, uint64(segment.boot.Unix()), segment.beats))
			for i := range r.Interfaces {
				r.Interfaces[i].Rx.Packets++
			}
		}
	})
}

// TestReaderSeesNoMixtureWhileInterfacesComeAndGo reads while the directory is replaced at the highest rate that the
// segment supports: two replacements per reading.
func TestReaderSeesNoMixtureWhileInterfacesComeAndGo(t *testing.T) {
	segment := newSegment(t)
	socket := serve(t, segment)
	const readings = 2000
	begun := make(chan struct{}) // one element per reading
	var writer sync.WaitGroup
	writer.Go(func() {
		for n := uint64(0); ; n++ {
			r := Reading{Workers: 1, Errors: []Error{{"node/reason", n * 64}}}
			for i := range uint32(1 + n*7%30) {
				r.Interfaces = append(r.Interfaces, Interface{
					Index: i,
					Name:  fmt.Sprintf("tap%d", i),
					Rx:    Combined{n*64 + uint64(i), n},
				})
			}
			for range 5 {
				if err := segment.Update(&r); err != nil {
					t.Error(err)
				}
				for i := range r.Interfaces {
					r.Interfaces[i].Rx.Packets += 64
				}
			}
			if n%2 == 1 {
				if _, more := <-begun; !more {
					return
				}
			}
		}
	})
	client := connect(t, socket)
	whole := 0
	for range readings {
		select {
		case begun <- struct{}{}:
		default:
		}
		entries, err := client.DumpStats("^/if/(names|rx)$")
		if errors.Is(err, adapter.ErrStatsDataBusy) || errors.Is(err, adapter.ErrStatsAccessFailed) {
			continue
		}
		if err != nil || len(entries) != 2 {
			t.Fatalf("%d entries, %v", len(entries), err)
		}
		names := entries[0].Data.(adapter.NameStat)
		rx := entries[1].Data.(adapter.CombinedCounterStat)
		if len(rx) != 1 || len(rx[0]) != len(names) {
			t.Fatalf("%d names, counters %v", len(names), rx)
		}
		for i, name := range names {
			if string(name) != fmt.Sprintf("tap%d", i) || rx[0][i].Packets()%64 != uint64(i) {
				t.Fatalf("index %d: %s, %d packets", i, name, rx[0][i].Packets())
			}
		}
		whole++
	}
	close(begun)
	writer.Wait()
	if whole < readings/10 {
		t.Errorf("only %d of %d readings were whole", whole, readings)
	}
	t.Logf("%d of %d readings whole", whole, readings)
}

func TestRulesOfACLsHaveCounters(t *testing.T) {
	segment := newSegment(t)
	client := connect(t, serve(t, segment))
	// the third replaces the ACL, the fourth has no rules
	for _, want := range [][]Combined{{{1, 60}, {2, 128}}, {{3, 180}, {2, 128}}, {{0, 0}}, nil} {
		if err := segment.Update(&Reading{
			ACLs: []ACL{{Index: 7, Matches: want}, {Index: 9, Matches: []Combined{{5, 6}}}},
		}); err != nil {
			t.Fatal(err)
		}
		entries, err := client.DumpStats("^/acl/")
		if err != nil || len(entries) != 2 || string(entries[0].Name) != "/acl/7/matches" ||
			string(entries[1].Name) != "/acl/9/matches" {
			t.Fatalf("%v, %v", entries, err)
		}
		got := entries[0].Data.(adapter.CombinedCounterStat)[0]
		if len(got) != len(want) {
			t.Fatalf("counters %v, want %v", got, want)
		}
		for n, w := range want {
			if got[n].Packets() != w.Packets || got[n].Bytes() != w.Bytes {
				t.Errorf("rule %d: %v, want %v", n, got[n], w)
			}
		}
	}
}

func TestClientsCannotChangeTheSegment(t *testing.T) {
	segment := newSegment(t)
	conn, err := net.Dial("unixpacket", serve(t, segment))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var b [1]byte
	room := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := conn.(*net.UnixConn).ReadMsgUnix(b[:], room)
	if err != nil {
		t.Fatal(err)
	}
	messages, err := unix.ParseSocketControlMessage(room[:n])
	if err != nil || len(messages) != 1 {
		t.Fatal(messages, err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		t.Fatal(fds, err)
	}
	defer unix.Close(fds[0])
	if _, err := unix.Mmap(fds[0], 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); !errors.Is(err,
		unix.EPERM) {
		t.Errorf("map for writing: %v", err)
	}
	if _, err := unix.Pwrite(fds[0], []byte{9}, 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("write: %v", err)
	}
	if err := unix.Ftruncate(fds[0], 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("truncate: %v", err)
	}
	mapped, err := unix.Mmap(fds[0], 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatalf("map for reading: %v", err)
	}
	if err := unix.Munmap(mapped); err != nil {
		t.Error(err)
	}
}

func TestCountersStayWhenReadingDoesNotFit(t *testing.T) {
	segment := newSegment(t)
	client := connect(t, serve(t, segment))
	good := Reading{Workers: 1, Interfaces: []Interface{{Index: 1, Name: "tap1", Drops: 7}}}
	if err := segment.Update(&good); err != nil {
		t.Fatal(err)
	}
	var tooMany Reading
	for i := range uint32(30_000) {
		tooMany.Interfaces = append(tooMany.Interfaces, Interface{Index: i, Name: fmt.Sprintf("tap%d", i)})
	}
	if err := segment.Update(&tooMany); !errors.Is(err, errFull) {
		t.Errorf("%d interfaces: %v", len(tooMany.Interfaces), err)
	}
	if err := segment.Update(&Reading{Interfaces: []Interface{{Index: highestIndex, Name: "far"}}}); err == nil {
		t.Errorf("index %d is accepted", highestIndex)
	}
	compare(t, dump(t, client), expected(&good, uint64(segment.boot.Unix()), segment.beats))
}

// TestVPPsClientReadsTheSegment reads the segment with vpp_get_stats of VPP.
func TestVPPsClientReadsTheSegment(t *testing.T) {
	prefix := os.Getenv("WEFT_VPP")
	if prefix == "" {
		t.Skip("needs WEFT_VPP, the prefix of an installed VPP")
	}
	segment := newSegment(t)
	socket := serve(t, segment)
	r := Reading{Workers: 1, Errors: []Error{{"ip4-input/time_expired", 41}},
		Interfaces: []Interface{{Index: 2, Name: "memif1/0", Rx: Combined{5, 320}, Drops: 3}}}
	if err := segment.Update(&r); err != nil {
		t.Fatal(err)
	}
	program := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), filepath.Join(prefix, "bin/vpp_get_stats"),
			append([]string{"socket-name", socket}, args...)...)
		libraries, _ := filepath.Glob(filepath.Join(prefix, "lib/*-linux-gnu"))
		cmd.Env = append(os.Environ(),
			"LD_LIBRARY_PATH="+strings.Join(append(libraries, filepath.Join(prefix, "lib")), ":"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	listed := strings.Fields(program("ls", "/if/"))
	for _, name := range []string{"/if/names", "/if/rx", "/if/drops"} {
		if !slices.Contains(listed, name) {
			t.Errorf("%s is not listed: %q", name, listed)
		}
	}
	out := program("dump", "/interfaces/memif1_0/", "/err/", "/if/names", "/sys/heartbeat")
	for _, line := range []string{
		"5 packets, 320 bytes /interfaces/memif1_0/rx", "3 packets /interfaces/memif1_0/drops",
		"41 packets /err/ip4-input/time_expired", "[2]: memif1/0 /if/names", "2.00 /sys/heartbeat",
	} {
		if !strings.Contains(out, line) {
			t.Errorf("%q is missing in the output of VPP's client:\n%s", line, out)
		}
	}
}
