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

// peerRules returns rules as network policies have them, n in all: TCP and UDP ports of many peers. The last one
// permits the packets of BenchmarkPolicy.
func peerRules(n int) []ACLRule {
	var rules []ACLRule
	for i := range n - 1 {
		r := allow(true, acl4, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 200, byte(i >> 8), byte(i)}), 32).String(),
			"", []uint8{6, 17}[i%2])
		r.Destinations = PortRange{uint16(80 + i%7), uint16(80 + i%7 + i%3*10)}
		rules = append(rules, r)
	}
	return append(rules, allow(true, acl4, "10.9.0.0/16", "", 17, 5000, 5000))
}

// BenchmarkPolicy measures a routed UDP packet at an interface with an input ACL: of a session, and the first one of a
// flow, which opens a session and, as the table is full, replaces one. The cases alternate with packets that no ACL
// applies to, so that other load affects both; "ratio" is the median of all ratios to them. Times are those of the
// thread.
func BenchmarkPolicy(b *testing.B) {
	const turn = 1 << 13 // packets
	for _, rules := range []int{0, 10, 1000, 10000} {
		for _, kind := range []string{"established", "new"} {
			b.Run(fmt.Sprintf("rules=%d/flow=%s", rules, kind), func(b *testing.B) {
				raw := udp4("10.2.7.7", 18)
				answer := flow{"10.2.7.7", "10.9.0.1", 17, 5000, 4000, 0, 0}.frame()
				var spent [2][]time.Duration
				benches := [2]*bench{newBench(b), newBench(b)} // without and with ACLs
				with := Interface{Up: true, MAC: portMAC, Addresses: []netip.Addr{netip.MustParseAddr("10.1.0.1")}}
				if rules > 0 {
					with.ACL.Input = []*ACLFilter{NewACLFilter(0, "", peerRules(rules))}
				}
				if err := benches[1].engine.SetInterface(1, with); err != nil {
					b.Fatal(err)
				}
				benches[1].engine.Publish()
				for n, s := range benches {
					s.run(raw, frame.Virtio{}, 1) // the first packet of the flow
					if i := s.worker.snapshot.iface(1); i.acl != nil &&
						s.worker.acl.verdict(i, outward, answer) != noDrop {
						b.Fatal("no session")
					}
					if kind == "new" {
						next := uint16(n)
						s.in.each = func(b []byte) {
							next++
							binary.BigEndian.PutUint16(b[frame.EthernetLen+frame.IPv4Len:], next)
						}
					}
				}
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				for b.Loop() {
					for n, s := range benches {
						began := threadTime()
						s.run(raw, frame.Virtio{}, turn)
						spent[n] = append(spent[n], threadTime()-began)
					}
				}
				if d := benches[1].engine.Drops(); d["acl-plugin-in-ip4-fa/ACL deny packets"] != 0 {
					b.Fatalf("drops %v", d)
				}
				var ratios []float64
				for n := range spent[0] {
					ratios = append(ratios, float64(spent[1][n])/float64(spent[0][n]))
				}
				slices.Sort(ratios)
				slices.Sort(spent[0])
				slices.Sort(spent[1])
				b.ReportMetric(ratios[len(ratios)/2], "ratio")
				b.ReportMetric(float64(spent[0][len(spent[0])/2].Nanoseconds())/turn, "ns/packet-without")
				b.ReportMetric(float64(spent[1][len(spent[1])/2].Nanoseconds())/turn, "ns/packet")
				if i := benches[1].engine.live.Load().iface(1); i.acl != nil {
					t := i.acl.sessions
					room := 0
					for n := range t.shards {
						room += len(t.shards[n].sessions)
					}
					b.ReportMetric(float64(len(t.memory))/float64(room)*1000, "B/1000-sessions")
				}
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// BenchmarkClassifier compares the search for the last rule with a comparison of one rule after the other.
func BenchmarkClassifier(b *testing.B) {
	for _, n := range []int{10, 1000, 10000} {
		rules := peerRules(n)
		c := newClassifier(rules)
		var p aclPacket
		p.parse(udp4("10.2.7.7", 18))
		b.Run(fmt.Sprintf("rules=%d/tuples", n), func(b *testing.B) {
			for b.Loop() {
				if c.find(&p) != uint32(n-1) {
					b.Fatal("another rule")
				}
			}
		})
		b.Run(fmt.Sprintf("rules=%d/linear", n), func(b *testing.B) {
			for b.Loop() {
				if slices.IndexFunc(c.rules, func(r aclRule) bool { return r.matches(&p) }) < 0 {
					b.Fatal("no rule")
				}
			}
		})
		b.Run(fmt.Sprintf("rules=%d/compile", n), func(b *testing.B) {
			for b.Loop() {
				newClassifier(rules)
			}
		})
	}
}
