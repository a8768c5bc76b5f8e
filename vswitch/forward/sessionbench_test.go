package forward

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/weftnet/weft/vswitch/frame"
)

// BenchmarkSessions measures a routed packet of 60 bytes whose flow has a session at both of its interfaces, in turns
// with packets that no ACL applies to: the least time of each, and the difference of both. Times are those of the
// thread.
func BenchmarkSessions(b *testing.B) {
	const turn = 1 << 13 // packets
	for _, flows := range []int{1, 256, 1 << 14} {
		b.Run(fmt.Sprintf("flows=%d", flows), func(b *testing.B) {
			frames := sessionFrames(flows)
			benches := [2]*bench{newBench(b), newBench(b)} // without and with ACLs
			benches[1].openSessions(b, frames)
			for _, s := range benches {
				next := 0
				s.in.each = func(b []byte) {
					copy(b, frames[next*7919%flows]) // no order that the processor could predict
					next++
				}
			}
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			least := [2]time.Duration{time.Hour, time.Hour}
			for b.Loop() {
				for n, s := range benches {
					began := threadTime()
					s.run(frames[0], frame.Virtio{}, turn)
					least[n] = min(least[n], threadTime()-began)
				}
			}
			for i := range uint32(2) {
				if got := benches[1].engine.live.Load().iface(i + 1).acl.Input[0].Hits()[0].Packets; got != uint64(
					flows) {
					b.Fatalf("interface %d: the rule decided about %d packets of %d flows", i+1, got, flows)
				}
			}
			b.ReportMetric(float64(least[0].Nanoseconds())/turn, "ns/packet-without")
			b.ReportMetric(float64(least[1].Nanoseconds())/turn, "ns/packet")
			b.ReportMetric(float64((least[1]-least[0]).Nanoseconds())/turn, "ns/sessions")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// sessionFrames returns a frame of each of n flows.
func sessionFrames(n int) [][]byte {
	frames := make([][]byte, n)
	for i := range frames {
		frames[i] = udp4(netip.AddrFrom4([4]byte{10, 2, byte(i >> 8), byte(i)}).String(), 18)
	}
	return slices.Clip(frames)
}

// openSessions gives both interfaces an input ACL, and opens the sessions of frames.
func (s *bench) openSessions(b *testing.B, frames [][]byte) {
	rules := []ACLRule{allow(true, acl4, "", "", 0)}
	for index := uint32(1); index <= 2; index++ {
		i := Interface{Up: true, MAC: portMAC, Addresses: []netip.Addr{netip.MustParseAddr("10.1.0.1")}}
		i.ACL = AccessLists{Input: []*ACLFilter{NewACLFilter(0, "", rules)}, Count: true}
		if err := s.engine.SetInterface(index, i); err != nil {
			b.Fatal(err)
		}
	}
	s.engine.Publish()
	s.worker.refresh()
	for _, raw := range frames {
		answer := slices.Clone(raw)
		p := answer[frame.EthernetLen:]
		copy(p[12:16], raw[frame.EthernetLen+16:])
		copy(p[16:20], raw[frame.EthernetLen+12:])
		binary.BigEndian.PutUint16(p[frame.IPv4Len:], 5000)
		binary.BigEndian.PutUint16(p[frame.IPv4Len+2:], 4000)
		for index, opener := range map[uint32][]byte{1: raw, 2: answer} {
			if r := s.worker.acl.verdict(s.worker.snapshot.iface(index), inward, opener); r != noDrop {
				b.Fatalf("interface %d: %s", index, reasonNames[r])
			}
		}
	}
}
