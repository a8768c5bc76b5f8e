package forward

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/weftnet/weft/vswitch/frame"
)

// FuzzACL compares the filter with a simple implementation. Eight bytes of setup make a rule.
func FuzzACL(f *testing.F) {
	guard := []byte{
		0, 58, 134, 134, 0, 255, 1, 0, 1, 58, 0, 255, 0, 255, 1, 0, 0, 17, 0, 255, 68, 68, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0,
		1, 6, 0, 255, 0, 255, 1, 2,
	}
	for _, c := range guardCases() {
		f.Add(guard, c.raw)
	}
	f.Fuzz(func(t *testing.T, setup, raw []byte) {
		var rules []ACLRule
		for ; len(setup) >= 8 && len(rules) < 20; setup = setup[8:] {
			rules = append(rules, fuzzedRule(setup))
		}
		filter := filterOf(rules)
		got := filter.dropReason(raw) == noDrop
		want := plainVerdict(rules, raw)
		if got != want {
			t.Errorf("permitted %t, want %t; rules %+v, frame %x", got, want, rules, raw)
		}
		if len(raw) >= frame.EthernetLen && filter.permitsPlain(raw[:min(len(raw), frame.HeadLen)], len(raw)) && !want {
			t.Errorf("the fast path permits a frame that %+v deny: %x", rules, raw)
		}
	})
}

func fuzzedRule(b []byte) ACLRule {
	r := ACLRule{
		Permit:       b[0]&1 != 0,
		Protocol:     b[1],
		Sources:      PortRange{uint16(b[2]), uint16(b[3])},
		Destinations: PortRange{uint16(b[4]), uint16(b[5])},
		TCPMask:      b[7], TCPFlags: b[7] & b[0],
	}
	r.Source = netip.MustParsePrefix("0.0.0.0/0")
	r.Destination = netip.MustParsePrefix("10.0.0.0/8")
	if b[6]&1 != 0 {
		r.Source = netip.MustParsePrefix("fe80::/10")
		r.Destination = netip.MustParsePrefix("::/0")
	}
	if b[6]&2 != 0 {
		r.Source = netip.PrefixFrom(r.Source.Addr(), 0)
		r.Destination = netip.PrefixFrom(r.Destination.Addr(), 0)
	}
	return r
}

// plainVerdict evaluates all rules in order.
func plainVerdict(rules []ACLRule, raw []byte) bool {
	if len(raw) < 14 {
		return true
	}
	at := 12
	for tags := 0; tags < 2 && isTag(raw[at:]) && len(raw) >= at+6; tags++ {
		at += 4
	}
	if isTag(raw[at:]) {
		return false
	}
	kind := binary.BigEndian.Uint16(raw[at:])
	p := raw[at+2:]
	switch {
	case kind != 0x0800 && kind != 0x86dd:
		return true
	case kind == 0x0800 && (len(p) < 20 || p[0]&15 < 5) || kind == 0x86dd && len(p) < 40:
		return false
	}
	var source, destination netip.Addr
	var protocol byte
	var upper []byte
	var later, first bool
	if kind == 0x0800 {
		source = netip.AddrFrom4([4]byte(p[12:]))
		destination = netip.AddrFrom4([4]byte(p[16:]))
		protocol = p[9]
		later = binary.BigEndian.Uint16(p[6:])&0x1fff != 0
		first = !later && binary.BigEndian.Uint16(p[6:])&0x2000 != 0
		upper = p[min(int(p[0]&15)*4, len(p)):]
	} else {
		source = netip.AddrFrom16([16]byte(p[8:]))
		destination = netip.AddrFrom16([16]byte(p[24:]))
		protocol, upper, later, first = plainChain(p)
	}
	for _, r := range rules {
		if r.Source.Addr().Is4() == source.Is4() && r.Source.Contains(source) && r.Destination.Contains(destination) &&
			plainUpper(r, protocol, upper, later) &&
			!((later || first) && r.Permit && isNeverFragmented(&r)) {
			return r.Permit
		}
	}
	return false
}

func isTag(b []byte) bool {
	return len(b) >= 2 && (b[0] == 0x81 && b[1] == 0 || b[0] == 0x88 && b[1] == 0xa8)
}

// plainChain finds the upper layer, which is empty if the headers before it do not end.
func plainChain(p []byte) (protocol byte, upper []byte, later, first bool) {
	protocol = p[6]
	upper = p[40:]
	fragments := 0
	for range 8 {
		isFragment := protocol == 44
		if !isFragment && protocol != 0 && protocol != 43 && protocol != 60 {
			return protocol, upper, false, first
		}
		if len(upper) < 8 || isFragment && fragments > 0 {
			return protocol, nil, false, first
		}
		length := 8
		if isFragment {
			fragments++
			later = binary.BigEndian.Uint16(upper[2:])>>3 != 0
			first = !later && upper[3]&1 != 0
		} else {
			length += 8 * int(upper[1])
		}
		protocol = upper[0]
		if later {
			return protocol, nil, true, false
		}
		upper = upper[min(length, len(upper)):]
	}
	return protocol, nil, false, first
}

func plainUpper(r ACLRule, protocol byte, upper []byte, later bool) bool {
	if r.Protocol == 0 {
		return true
	}
	if r.Protocol != protocol || !later && len(upper) < 8 {
		return false
	}
	if later {
		return true
	}
	var a, b uint16
	switch {
	case protocol == 6 || protocol == 17 || protocol == 132:
		a = uint16(upper[0])<<8 | uint16(upper[1])
		b = uint16(upper[2])<<8 | uint16(upper[3])
	case protocol == 1 && r.Source.Addr().Is4() || protocol == 58 && r.Source.Addr().Is6():
		a = uint16(upper[0])
		b = uint16(upper[1])
	}
	if protocol == 6 && len(upper) > 13 && upper[13]&r.TCPMask != r.TCPFlags {
		return false
	}
	return a >= r.Sources.First && a <= r.Sources.Last && b >= r.Destinations.First && b <= r.Destinations.Last
}
