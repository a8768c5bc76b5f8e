package forward

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/vswitch/frame"
)

// traced sends a frame from the first client and returns its path, without times.
func (b *memifBench) traced(tb testing.TB, f []byte) string {
	tb.Helper()
	room := roomFor(1)
	w := b.worker
	w.tracing = &tracing{records: make([]tracePath, 0, 1)}
	w.tracing.left[MemifInput] = 1
	b.cross(tb, [][]byte{f}, room)
	paths := w.tracing.records
	w.tracing = nil
	if len(paths) != 1 {
		tb.Fatalf("%d paths", len(paths))
	}
	paths[0].at = 0
	text := paths[0].format(func(i uint32) string { return fmt.Sprintf("memif1/%d", i) })
	return strings.ReplaceAll(text, "00:00:00:000000: ", "")
}

func TestPathOfARoutedPacket(t *testing.T) {
	b := newMemifBench(t, func(*memif.ClientConfig) {})
	b.route(t)
	got := b.traced(t, udp4("10.2.7.7", 18))
	for _, want := range []string{
		"memif-input\n  memif: hw_if_index 1 len 60\nethernet-input\n  frame: flags 0x0, hw-if-index 1, sw-if-index 1\n  IP4: ",
		"\n  UDP: 10.9.0.1 -> 10.2.7.7\n    ttl 64, length 46\n",
		"\nip-lookup\n  table 0: via 10.2.0.1 memif1/2\nip-rewrite\n  to " + podMAC.String() +
			" by memif1/2\nmemif1/2-output\n  memif1/2",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the path has not %q:\n%s", want, got)
		}
	}
}

// Each drop ends a path with the reason.
func TestPathsOfDroppedPackets(t *testing.T) {
	b := newMemifBench(t, func(*memif.ClientConfig) {})
	b.route(t)
	foreign := udp4("10.2.7.7", 18)
	frame.PutEthernet(foreign, frame.MAC{2, 9}, podMAC, frame.TypeIPv4)
	for want, f := range map[string][]byte{
		"ethernet-input: l3 mac mismatch":                 foreign,
		"ip4-input: multicast or broadcast not forwarded": udp4("224.0.0.5", 18),
		"ip4-lookup: no route":                            udp4("10.77.0.1", 18),
		"ethernet-input: frame too short":                 {1, 2, 3},
	} {
		if got := b.traced(t, f); !strings.HasSuffix(got, want) {
			t.Errorf("the path does not end with %q:\n%s", want, got)
		}
	}
}

func TestPathInABridgeDomain(t *testing.T) {
	b := newMemifBench(t, func(*memif.ClientConfig) {})
	b.bridge(t)
	flooded := b.traced(t, udp4("10.2.7.7", 18))
	b.teach(t)
	known := b.traced(t, udp4("10.2.7.7", 18))
	if !strings.Contains(flooded,
		"\nl2-input\n  l2-input: bd_id 1 dst "+portMAC.String()+
			"\nl2-flood\n  flooded in a bridge domain of 2 members\nmemif1/2-output") {
		t.Error(flooded)
	}
	if !strings.Contains(known, "\nl2-fwd\n  known MAC on memif1/2\nmemif1/2-output") {
		t.Error(known)
	}
}

// Records are bounded: a trace that is not ended takes no more memory, and the frames after it take the fast path
// again.
func TestTraceEndsWhenItsRecordsAreFull(t *testing.T) {
	b := newMemifBench(t, func(*memif.ClientConfig) {})
	b.route(t)
	b.worker.tracing = &tracing{records: make([]tracePath, 0, 3)}
	b.worker.tracing.left[MemifInput] = 100
	v := make([][]byte, 8)
	room := roomFor(8)
	for i := range v {
		v[i] = udp4("10.2.7.7", 18)
	}
	for range 2 {
		if n, _ := b.cross(t, v, room); n != len(v) {
			t.Fatalf("%d of %d arrived", n, len(v))
		}
	}
	tr := b.worker.tracing
	if len(tr.records) != 3 || b.worker.path != nil || tr.wants(b.engine.ports.Load().at(1)) {
		t.Errorf("%d records", len(tr.records))
	}
	if n := allocations(10, func() { b.cross(t, v, room) }); n != 0 {
		t.Errorf("%v allocations a vector", n)
	}
}
