package forward

import (
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"github.com/weftnet/weft/vswitch/frame"
)

var (
	exact    = frame.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	otherMAC = frame.MAC{2, 0, 0, 0, 0, 0x66}
)

func permit(prefix string) MACIPRule {
	return MACIPRule{Permit: true, MAC: podMAC, Mask: exact, Prefix: netip.MustParsePrefix(prefix)}
}

// podRules are the rules of a pod with 10.9.0.1 and fd09::1.
func podRules() []MACIPRule {
	return []MACIPRule{permit("10.9.0.1/32"), permit("fd09::1/128"), permit("fe80::9/128")}
}

func arpFrom(mac frame.MAC, sender string) []byte {
	b := make([]byte, frame.EthernetLen+frame.ARPLen)
	frame.PutEthernet(b, frame.Broadcast, podMAC, frame.TypeARP)
	frame.PutARP(b[14:], frame.ARPFields{
		Operation: frame.ARPRequest,
		SenderMAC: mac,
		Sender:    netip.MustParseAddr(sender),
		Target:    netip.MustParseAddr("10.1.0.1"),
	})
	return b
}

// advert6 returns an advertisement of target by fe80::9.
func advert6(target string, link frame.MAC) []byte {
	b := solicit6()
	source := netip.MustParseAddr("fe80::9").As16()
	copy(b[22:], source[:])
	frame.PutND(b[54:], frame.NDFields{
		Type:   frame.ICMP6Advert,
		Flags:  frame.NDFlagOverride,
		Target: netip.MustParseAddr(target),
		Option: frame.NDTargetLink,
		Link:   link,
	})
	return b
}

func from(mac frame.MAC, raw []byte) []byte {
	return change(raw, func(b []byte) { copy(b[6:], mac[:]) })
}

func source4(a string, raw []byte) []byte {
	return change(raw, func(b []byte) { s := netip.MustParseAddr(a).As4(); copy(b[26:], s[:]); fixIPv4Checksum(b) })
}

func source6(a string, raw []byte) []byte {
	return change(raw, func(b []byte) { s := netip.MustParseAddr(a).As16(); copy(b[22:], s[:]) })
}

func withTags(tags string, raw []byte) []byte {
	return append(append(append([]byte(nil), raw[:12]...), tags...), raw[12:]...)
}

func TestMACIPFiltersSenders(t *testing.T) {
	whole := frame.Ethernet(udp4("10.2.7.7", 18))
	for _, c := range []struct {
		rule  string
		raw   []byte
		want  bool
		extra []MACIPRule
	}{
		{"own IPv4", whole, true, nil},
		{"own IPv6", udp6("fd02::7", 18), true, nil},
		{"another MAC", from(otherMAC, udp4("10.2.7.7", 18)), false, nil},
		{"another IPv4 address", source4("10.9.0.2", udp4("10.2.7.7", 18)), false, nil},
		{"another IPv6 address", source6("fd09::2", udp6("fd02::7", 18)), false, nil},
		{"link-local address", source6("fe80::9", udp6("fe80::1", 18)), true, nil},
		{"another link-local address", source6("fe80::8", udp6("fe80::1", 18)), false, nil},
		{"DHCP without a rule", source4("0.0.0.0", udp4("255.255.255.255", 18)), false, nil},
		{
			"DHCP with its rule", source4("0.0.0.0", udp4("255.255.255.255", 18)), true,
			[]MACIPRule{permit("0.0.0.0/32")},
		},
		{"duplicate address detection", source6("::", solicit6()), false, nil},
		{"duplicate address detection with its rule", source6("::", solicit6()), true, []MACIPRule{permit("::/128")}},
		{"own ARP", arpFrom(podMAC, "10.9.0.1"), true, nil},
		{"ARP for another address", arpFrom(podMAC, "10.9.0.2"), false, nil},
		{"ARP with another MAC inside", arpFrom(otherMAC, "10.9.0.1"), false, nil},
		{"ARP with another MAC outside", from(otherMAC, arpFrom(podMAC, "10.9.0.1")), false, nil},
		{"ARP probe", arpFrom(podMAC, "0.0.0.0"), false, nil},
		{"ARP probe with its rule", arpFrom(podMAC, "0.0.0.0"), true, []MACIPRule{permit("0.0.0.0/32")}},
		{"solicitation", solicit6(), true, nil},
		{"advertisement of an own address", advert6("fd09::1", podMAC), true, nil},
		{"advertisement of a foreign address", advert6("fd09::2", podMAC), false, nil},
		{"advertisement with a foreign MAC", advert6("fd09::1", otherMAC), false, nil},
		{"one tag", withTags("\x81\x00\x00\x05", udp4("10.2.7.7", 18)), true, nil},
		{"two tags", withTags("\x88\xa8\x00\x05\x81\x00\x00\x06", arpFrom(podMAC, "10.9.0.2")), false, nil},
		{"not IP", change(udp4("10.2.7.7", 18), func(b []byte) { b[12] = 0x89 }), false, nil},
		{"a cut header", udp6("fd02::7", 18)[:50], false, nil},
		{"a cut Ethernet header", whole[:13], false, nil},
		{
			"a prefix with a masked MAC", source4("10.8.3.4", from(frame.MAC{2, 0, 0, 9, 9, 9}, udp4("10.2.7.7", 18))),
			true,
			[]MACIPRule{
				{
					Permit: true,
					MAC:    frame.MAC{2, 0, 0, 7, 7, 7},
					Mask:   frame.MAC{0xff, 0xff, 0xff},
					Prefix: netip.MustParsePrefix("10.8.99.99/16"),
				},
			},
		},
		{
			"a more specific denial", whole, false,
			[]MACIPRule{{MAC: podMAC, Mask: exact, Prefix: netip.MustParsePrefix("10.9.0.1/32")}},
		},
		{"a less specific denial", whole, true, []MACIPRule{{Prefix: netip.MustParsePrefix("0.0.0.0/0")}}},
		{
			"everything of IPv4 by one rule", from(otherMAC, source4("1.2.3.4", udp4("10.2.7.7", 18))), true,
			[]MACIPRule{{Permit: true, Prefix: netip.MustParsePrefix("0.0.0.0/0")}},
		},
	} {
		t.Run(c.rule, func(t *testing.T) {
			f := NewMACIPFilter(append(podRules(), c.extra...))
			if got := f.permits(c.raw); got != c.want {
				t.Errorf("permitted: %v", got)
			}
		})
	}
	if NewMACIPFilter(nil).permits(whole) {
		t.Error("a filter without rules permits frames")
	}
}

func TestDeniedFramesAreOnlyCounted(t *testing.T) {
	b := newBench(t)
	i := b.engine.live.Load().iface(1)
	set := func(f *MACIPFilter) {
		t.Helper()
		if err := b.engine.SetInterface(1, Interface{
			Up:         true,
			MAC:        portMAC,
			Addresses:  i.addresses,
			IP6Enabled: true,
			MACIP:      f,
		}); err != nil {
			t.Fatal(err)
		}
		b.engine.Publish()
	}
	set(NewMACIPFilter(podRules()))
	bad := source4("10.9.0.2", udp4("10.2.7.7", 18))
	b.run(udp4("10.2.7.7", 18), frame.Virtio{}, 3)
	b.run(bad, frame.Virtio{}, 2)
	b.run(arpFrom(podMAC, "10.9.0.2"), frame.Virtio{}, 1)
	drops := b.engine.Drops()
	if drops["ip4-inacl/input ACL misses"] != 2 || drops["l2-input-acl/input ACL misses"] != 1 || b.out.sent != 3 ||
		b.engine.Counters(1).Punts != 0 {
		t.Errorf("%d sent, drops %v", b.out.sent, b.engine.Drops())
	}
	if n := allocations(10, func() { b.run(bad, frame.Virtio{}, 8) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	set(nil)
	b.run(bad, frame.Virtio{}, 1)
	if b.out.sent != 4 {
		t.Errorf("%d sent without a filter", b.out.sent)
	}
}

// TestMACIPFilterMatchesVPPsClassifier compares with a simple form of macip_create_classify_tables: tables of rules of
// one kind, the highest metric first.
func TestMACIPFilterMatchesVPPsClassifier(t *testing.T) {
	macs := rapid.SampledFrom([]frame.MAC{podMAC, otherMAC, {2, 0, 0, 0, 1, 9}})
	masks := rapid.SampledFrom([]frame.MAC{exact, {}, {0xff, 0xff, 0xff, 0xff}, {0, 0, 0, 0, 0, 0xff}})
	address := rapid.Custom(func(t *rapid.T) netip.Addr {
		return netip.AddrFrom4([4]byte{10, 0, rapid.Byte().Draw(t, "net") & 1, rapid.Byte().Draw(t, "host") & 3})
	})
	rapid.Check(t, func(t *rapid.T) {
		var rules []MACIPRule
		for range rapid.IntRange(0, 8).Draw(t, "rules") {
			rules = append(rules, MACIPRule{
				Permit: rapid.Bool().Draw(t, "permit"),
				MAC:    macs.Draw(t, "mac"),
				Mask:   masks.Draw(t, "mask"),
				Prefix: netip.PrefixFrom(address.Draw(t, "address"),
					rapid.SampledFrom([]int{0, 24, 31, 32}).Draw(t, "bits")),
			})
		}
		mac := macs.Draw(t, "from")
		a := address.Draw(t, "source")
		best := -1
		want := false
		for _, r := range rules {
			metric := r.Prefix.Bits()
			for _, other := range rules {
				if other.Mask == r.Mask && other.Prefix.Bits() == r.Prefix.Bits() {
					metric += 10
				}
			}
			matches := r.Prefix.Masked().Contains(a)
			for i, m := range r.Mask {
				for bit := m; bit != 0; bit &= bit - 1 {
					metric++
				}
				matches = matches && mac[i]&m == r.MAC[i]&m
			}
			if matches && metric >= best {
				best = metric
				want = r.Permit
			}
		}
		raw := source4(a.String(), from(mac, udp4("10.2.7.7", 18)))
		if got := NewMACIPFilter(rules).permits(raw); got != want {
			t.Fatalf("permitted: %v", got)
		}
	})
}

func FuzzMACIP(f *testing.F) {
	for _, raw := range append(seeds(), advert6("fd09::1", podMAC), arpFrom(podMAC, "10.9.0.1"),
		withTags("\x81\x00\x00\x05", solicit6())) {
		f.Add(raw)
	}
	filter := NewMACIPFilter(podRules())
	f.Fuzz(func(t *testing.T, raw []byte) {
		if filter.permits(raw) && frame.MAC(raw[6:12]) != podMAC {
			t.Fatal("a foreign sender is permitted")
		}
	})
}

func BenchmarkMACIP(b *testing.B) {
	rules := podRules()
	for i := range 13 {
		rules = append(rules, permit(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 9, 1, byte(i)}), 32).String()))
	}
	f := NewMACIPFilter(rules)
	raw := udp6("fd02::7", 18)
	for b.Loop() {
		if !f.permits(raw) {
			b.Fatal("denied")
		}
	}
}
