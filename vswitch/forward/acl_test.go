package forward

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"maps"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/wire"
)

// guardRules are the rules that ipnet generates for pods of layer 2 networks, as weft-vswitch gets them: one per
// protocol.
func guardRules(tb testing.TB) []ACLRule {
	tb.Helper()
	file, err := os.Open("../../ipnet/testdata/node-dual.golden")
	if err != nil {
		tb.Fatal(err)
	}
	defer file.Close()
	var a wire.ACL
	lines := bufio.NewScanner(file)
	for lines.Buffer(nil, 1<<20); lines.Scan(); {
		if value, ok := bytes.CutPrefix(lines.Bytes(), []byte("vpp.acl/weft:guard ")); ok {
			if err := json.Unmarshal(value, &a); err != nil {
				tb.Fatal(err)
			}
		}
	}
	if len(a.Rules) == 0 {
		tb.Fatal("the golden file has no rules")
	}
	var rules []ACLRule
	for _, r := range a.Rules {
		all := netip.MustParsePrefix("0.0.0.0/0")
		if r.Family == netaddr.IP6 {
			all = netip.MustParsePrefix("::/0")
		}
		if len(r.Ports) == 0 {
			rules = append(rules, ACLRule{Permit: r.Permit, Source: all, Destination: all})
		}
		for _, x := range r.Ports {
			for p := x.Protocols.First; p <= x.Protocols.Last; p++ {
				rules = append(rules, ACLRule{Permit: r.Permit, Source: all, Destination: all, Protocol: uint8(p),
					Sources: PortRange(x.Sources), Destinations: PortRange(x.Destinations)})
			}
		}
	}
	return rules
}

// packet6 returns a frame with an IPv6 packet: protocol is that of the first part.
func packet6(protocol uint8, parts ...[]byte) []byte {
	payload := bytes.Join(parts, nil)
	b := make([]byte, frame.EthernetLen+frame.IPv6Len, 200)
	frame.PutEthernet(b, frame.Broadcast, podMAC, frame.TypeIPv6)
	frame.PutIPv6(b[frame.EthernetLen:], frame.IPFields{
		TTL:         255,
		Protocol:    protocol,
		Source:      netip.MustParseAddr("fe80::9"),
		Destination: netip.MustParseAddr("ff02::1"), PayloadLen: len(payload),
	})
	return append(b, payload...)
}

// packet4 returns a frame with an IPv4 packet, with options and a fragment field.
func packet4(protocol uint8, options []byte, fragment uint16, payload []byte) []byte {
	b := make([]byte, frame.EthernetLen+frame.IPv4Len, 200)
	frame.PutEthernet(b, frame.Broadcast, podMAC, frame.TypeIPv4)
	frame.PutIPv4(b[frame.EthernetLen:], frame.IPFields{
		TTL:         64,
		Protocol:    protocol,
		Source:      netip.MustParseAddr("10.9.0.1"),
		Destination: netip.MustParseAddr("255.255.255.255"), PayloadLen: len(options) + len(payload),
	})
	b[14] += byte(len(options) / 4)
	binary.BigEndian.PutUint16(b[20:], fragment)
	return append(append(b, options...), payload...)
}

func icmpMessage(kind uint8) []byte { return []byte{kind, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0} }

func udpTo(source, destination uint16) []byte {
	b := make([]byte, 12)
	binary.BigEndian.PutUint16(b, source)
	binary.BigEndian.PutUint16(b[2:], destination)
	binary.BigEndian.PutUint16(b[4:], 12)
	return b
}

// extension returns an IPv6 extension header of 8*n bytes.
func extension(next uint8, n int) []byte {
	b := make([]byte, 8*n)
	b[0] = next
	b[1] = uint8(n - 1)
	return b
}

// fragmentHeader returns a fragment header with an offset in units of 8 bytes.
func fragmentHeader(next uint8, offset uint16, more bool) []byte {
	b := []byte{next, 0, 0, 0, 0, 0, 0, 7}
	binary.BigEndian.PutUint16(b[2:], offset<<3)
	if more {
		b[3] |= 1
	}
	return b
}

// testFilter applies an ACL to frames that are received.
type testFilter struct{ *ACLFilter }

func filterOf(rules []ACLRule) testFilter { return testFilter{NewACLFilter(0, "test", rules)} }

func (f testFilter) iface() *iface {
	return &iface{acl: &accessLists{lists: [2][]*ACLFilter{{f.ACLFilter}}}}
}

func (f testFilter) dropReason(raw []byte) reason {
	c := newAccessControl(&view{}, time.Now())
	return c.verdict(f.iface(), inward, raw)
}

func (f testFilter) permitsPlain(h []byte, n int) bool {
	return new(plainACL).permits(&worker{acl: newAccessControl(&view{}, time.Now())}, f.iface(), inward, plainFrame{
		h, n,
	})
}

// guardCase is a frame, and whether members of a guarded network may send it.
type guardCase struct {
	raw  []byte
	want bool
}

func guardCases() map[string]guardCase {
	cases := evasions()
	maps.Copy(cases, plainCases())
	return cases
}

// plainCases are frames without fragments, extension headers and tags.
func plainCases() map[string]guardCase {
	advert := icmpMessage(134)
	redirect := icmpMessage(137)
	solicitation := icmpMessage(133)
	echo := icmpMessage(128)
	return map[string]guardCase{
		"router advertisement":              {packet6(58, advert), false},
		"redirect of IPv6":                  {packet6(58, redirect), false},
		"router solicitation":               {packet6(58, solicitation), true},
		"neighbour solicitation":            {solicit6(), true},
		"neighbour advertisement":           {advert6("fd09::1", podMAC), true},
		"echo of IPv6":                      {packet6(58, echo), true},
		"redirect of IPv4":                  {packet4(1, nil, 0, icmpMessage(5)), false},
		"redirect of IPv4 behind options":   {packet4(1, make([]byte, 8), 0, icmpMessage(5)), false},
		"echo of IPv4":                      {packet4(1, nil, 0, icmpMessage(8)), true},
		"reply of DHCP":                     {packet4(17, nil, 0, udpTo(67, 68)), false},
		"reply of DHCP from another port":   {packet4(17, nil, 0, udpTo(1067, 68)), false},
		"reply of DHCP behind options":      {packet4(17, make([]byte, 40), 0, udpTo(67, 68)), false},
		"request of DHCP":                   {packet4(17, nil, 0, udpTo(68, 67)), true},
		"reply of DHCPv6":                   {packet6(17, udpTo(547, 546)), false},
		"reply of DHCPv6 from another port": {packet6(17, udpTo(1547, 546)), false},
		"request of DHCPv6":                 {packet6(17, udpTo(546, 547)), true},
		"UDP of IPv4":                       {udp4("10.2.7.7", 18), true},
		"UDP of IPv6":                       {udp6("fd02::7", 18), true},
		"TCP of IPv4":                       {packet4(6, nil, 0, make([]byte, 20)), true},
		"TCP of IPv6":                       {packet6(6, make([]byte, 20)), true},
		"SCTP of IPv6":                      {packet6(132, make([]byte, 12)), true},
		"no next header":                    {packet6(59, make([]byte, 8)), true},
		"ARP":                               {arpFrom(podMAC, "10.9.0.1"), true},
		"another Ethernet type":             {between(host(1), host(2)), true},
	}
}

// evasions are malformed frames, and those with fragments, extension headers and tags.
func evasions() map[string]guardCase {
	advert := icmpMessage(134)
	echo := icmpMessage(128)
	tag := "\x81\x00\x00\x00" // priority tag: Linux handles the frame as untagged
	return map[string]guardCase{
		"TCP of IPv6 behind options":               {packet6(60, extension(6, 2), make([]byte, 20)), true},
		"advertisement behind hop by hop options":  {packet6(0, extension(58, 1), advert), false},
		"advertisement behind a routing header":    {packet6(43, extension(58, 2), advert), false},
		"advertisement behind destination options": {packet6(60, extension(58, 3), advert), false},
		"advertisement behind four headers": {
			packet6(0, extension(60, 1), extension(43, 1), extension(60, 2), extension(58, 1), advert), false,
		},
		"advertisement behind nine headers": {
			packet6(0, append(slices.Repeat(extension(60, 1), 8), append(extension(58, 1), advert...)...)), false,
		},
		"advertisement in an atomic fragment": {packet6(44, fragmentHeader(58, 0, false), advert), false},
		"first fragment of an advertisement":  {packet6(44, fragmentHeader(58, 0, true), advert[:8]), false},
		"first fragment without the upper layer": {
			packet6(44, fragmentHeader(60, 0, true), extension(58, 1)), false,
		},
		"first fragment that ends in an option": {
			packet6(44, fragmentHeader(60, 0, true), extension(58, 2)[:8]), false,
		},
		"first fragment with part of the upper layer": {
			packet6(44, fragmentHeader(60, 0, true), extension(17, 1), udpTo(1, 2)[:4]), false,
		},
		"first fragment of a reply of DHCPv6": {
			packet6(44, fragmentHeader(60, 0, true), extension(17, 1), udpTo(547, 546)[:8]), false,
		},
		"first fragment of UDP": {
			packet6(44, fragmentHeader(17, 0, true), udpTo(1, 2)[:8]), true,
		},
		"later fragment of UDP": {
			packet6(44, fragmentHeader(17, 1, false), make([]byte, 8)), true,
		},
		"later fragment of ICMPv6": {
			packet6(44, fragmentHeader(58, 1, false), make([]byte, 8)), true,
		},
		"later fragment of a chain of headers": {packet6(44, fragmentHeader(60, 1, false), advert), false},
		"two fragment headers": {
			packet6(44, fragmentHeader(44, 0, false), fragmentHeader(17, 1, false), udpTo(547, 546)), false,
		},
		"first fragment of a reply of DHCP":      {packet4(17, nil, 0x2000, udpTo(67, 68)[:8]), false},
		"later fragment of UDP over IPv4":        {packet4(17, nil, 1, make([]byte, 8)), true},
		"later fragment of ICMP":                 {packet4(1, nil, 1, make([]byte, 8)), true},
		"advertisement with a priority tag":      {withTags(tag, packet6(58, advert)), false},
		"advertisement with two priority tags":   {withTags(tag+tag, packet6(58, advert)), false},
		"advertisement with three priority tags": {withTags(tag+tag+tag, packet6(58, advert)), false},
		"echo with a tag":                        {withTags("\x81\x00\x00\x05", packet6(58, echo)), true},
		"TCP with two tags": {
			withTags("\x88\xa8\x00\x05\x81\x00\x00\x06", packet4(6, nil, 0, make([]byte, 20))), true,
		},
		"cut header of IPv6": {packet6(58, advert)[:53], false},
		"short header of IPv4": {
			change(packet4(17, nil, 0, udpTo(1, 2)), func(b []byte) { b[14] = 0x44 }), false,
		},
		"cut header of IPv4": {packet4(1, nil, 0, nil)[:33], false},
		"cut tag":            {withTags(tag, packet6(58, advert))[:15], false},
	}
}

func TestGuardedMembersCannotActAsRouterOrDHCPServer(t *testing.T) {
	f := filterOf(guardRules(t))
	for name, c := range guardCases() {
		t.Run(name, func(t *testing.T) {
			drop := f.dropReason(c.raw)
			if (drop == noDrop) != c.want {
				t.Errorf("drop reason %q", reasonNames[drop])
			}
			if f.permitsPlain(c.raw[:min(len(c.raw), frame.HeadLen)], len(c.raw)) && !c.want {
				t.Error("the fast path forwards it")
			}
		})
	}
}

func TestPlainFramesOfGuardedMembersTakeTheFastPath(t *testing.T) {
	f := filterOf(guardRules(t))
	for _, name := range []string{
		"UDP of IPv4", "UDP of IPv6", "TCP of IPv4", "TCP of IPv6", "echo of IPv4", "echo of IPv6", "ARP",
		"another Ethernet type",
	} {
		if raw := guardCases()[name].raw; !f.permitsPlain(raw, len(raw)) {
			t.Errorf("%s takes the full path", name)
		}
	}
}

// TestACLDropsInABridgeDomain sends by a worker: denied frames are counted, but neither forwarded nor learned from.
func TestACLDropsInABridgeDomain(t *testing.T) {
	b := newBench(t)
	bridge := Bridge{
		ID:      1,
		Learn:   true,
		Forward: true,
		Flood:   true,
		UUFlood: true,
		BVI:     NoInterface,
		Members: []BridgeMember{{Interface: 1}, {Interface: 2}},
	}
	if err := b.engine.SetBridge(bridge); err != nil {
		t.Fatal(err)
	}
	set := func(f ...*ACLFilter) {
		t.Helper()
		if err := b.engine.SetInterface(1, Interface{Up: true, MAC: portMAC, ACL: AccessLists{Input: f}}); err != nil {
			t.Fatal(err)
		}
		b.engine.Publish()
	}
	cases := guardCases()
	set(filterOf(guardRules(t)).ACLFilter)
	for _, name := range []string{"router advertisement", "reply of DHCP", "advertisement with three priority tags"} {
		b.run(cases[name].raw, frame.Virtio{}, 1)
	}
	drops := b.engine.Drops()
	for reason, want := range map[string]uint64{
		"acl-plugin-in-ip6-l2/ACL deny packets":          1,
		"acl-plugin-in-ip4-l2/ACL deny packets":          1,
		"acl-plugin-in-nonip-l2/more than two VLAN tags": 1, "l2-learn/L2 learn misses": 0,
	} {
		if drops[reason] != want {
			t.Errorf("%s: %d, want %d", reason, drops[reason], want)
		}
	}
	if n := allocations(10, func() { b.run(cases["router advertisement"].raw, frame.Virtio{}, 8) }); n != 0 ||
		b.out.sent != 0 {
		t.Errorf("%v allocations, %d sent", n, b.out.sent)
	}
	b.run(cases["echo of IPv6"].raw, frame.Virtio{}, 1)
	if b.out.sent != 1 {
		t.Errorf("%d sent of a frame that is permitted", b.out.sent)
	}
	set()
	b.run(cases["router advertisement"].raw, frame.Virtio{}, 1)
	if b.out.sent != 2 {
		t.Errorf("%d sent after the ACL was removed", b.out.sent)
	}
}

// BenchmarkACL compares the cost of a frame between two members of a bridge domain with and without the ACL of guarded
// networks. The two cases alternate, so that other load affects both; "ratio" is the median of all ratios.
func BenchmarkACL(b *testing.B) {
	frames := map[string][]byte{
		"TCP of IPv4": packet4(6, nil, 0, make([]byte, 40)), "UDP of IPv4": udp4("10.2.7.7", 18),
		"TCP of IPv6": packet6(6, make([]byte, 40)),
		"UDP of IPv6": udp6("fd02::7", 18), "echo of IPv6": packet6(58, icmpMessage(128)),
		"not IP":                   between(host(1), host(2)),
		"UDP of IPv6 with options": packet6(60, extension(17, 1), udpTo(1, 2)),
	}
	const turn = 1 << 14 // frames
	for name, raw := range frames {
		destination := host(2)
		source := host(1)
		copy(raw, destination[:])
		copy(raw[6:], source[:])
		b.Run(name, func(b *testing.B) {
			s := newSegment(b, plain(1, 1, 2))
			s.reached(2, host(2), frame.Broadcast)
			filter := filterOf(guardRules(b)).ACLFilter
			var spent [2][]time.Duration
			for b.Loop() {
				for n, f := range [][]*ACLFilter{nil, {filter}} {
					s.set(1, Interface{Up: true, MAC: portMAC, ACL: AccessLists{Input: f}})
					s.engine.Publish()
					s.run(1, raw, frame.VectorSize)
					begin := time.Now()
					s.run(1, raw, turn)
					spent[n] = append(spent[n], time.Since(begin))
				}
			}
			var ratios []float64
			for n := range spent[0] {
				ratios = append(ratios, float64(spent[1][n])/float64(spent[0][n]))
			}
			slices.Sort(ratios)
			slices.Sort(spent[0])
			b.ReportMetric(ratios[len(ratios)/2], "ratio")
			b.ReportMetric(float64(spent[0][len(spent[0])/2].Nanoseconds())/turn, "ns/frame-without")
			b.ReportMetric(0, "ns/op")
		})
	}
}
