package policy

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"testing"
)

// The rules of an earlier run hold until the cluster is known, also those that an earlier version saved.
func TestRulesOfEarlierVersionsAreRead(t *testing.T) {
	for text, want := range map[string]Rule{
		`{"remote":"10.0.0.1/32","protocol":6,"ports":{"First":80,"Last":81},"origin":"x"}`: {
			Remotes: prefixes("10.0.0.1/32"), Ports: []PortRange{{TCP, Range{80, 81}}}, Origin: "x",
		},
		`{"action":1,"remote":"::/0","ports":{"First":0,"Last":65535}}`: {Action: Deny, Remotes: prefixes("::/0")},
		`{"remotes":["10.0.0.1/32","fd00::1/128"],"ranges":[{"protocol":17,"first":1,"last":2}]}`: {
			Remotes: prefixes("10.0.0.1/32", "fd00::1/128"), Ports: []PortRange{{UDP, Range{1, 2}}},
		},
	} {
		var got Rule
		if err := json.Unmarshal([]byte(text), &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
		raw, err := json.Marshal(want)
		var again Rule
		if err != nil || json.Unmarshal(raw, &again) != nil || !reflect.DeepEqual(again, want) {
			t.Errorf("%+v is read back as %+v", want, again)
		}
	}
}

func TestPortsAreMergedAndIntersectedExactly(t *testing.T) {
	has := func(ranges []PortRange, protocol uint8, port uint16) bool {
		for _, r := range ranges {
			if r.Protocol == protocol && r.Contains(port) {
				return true
			}
		}
		return false
	}
	d := newDice(seedOf(t), 0)
	some := func() (ranges []PortRange) {
		for range 1 + d.IntN(6) {
			first := uint16(d.IntN(20))
			ranges = append(ranges, PortRange{pick(d, uint8(TCP), UDP, SCTP), Range{first, first + uint16(d.IntN(4))}})
		}
		return ranges
	}
	for range 2000 {
		a := some()
		b := some()
		x := mergePorts(a)
		y := mergePorts(b)
		both, any := intersectPorts(x, y)
		if any != (len(both) > 0) {
			t.Fatalf("%v and %v: %v, %t", x, y, both, any)
		}
		for _, protocol := range []uint8{TCP, UDP, SCTP} {
			for port := range uint16(26) {
				if got := portsContain(x, protocol, port); got != has(a, protocol, port) {
					t.Fatalf("%v merged to %v: contains %d/%d: %t", a, x, protocol, port, got)
				}
				if got := has(both, protocol, port); got != (has(a, protocol, port) && has(b, protocol, port)) {
					t.Fatalf("%v and %v: %v contains %d/%d: %t", x, y, both, protocol, port, got)
				}
			}
		}
		for n := 1; n < len(x); n++ {
			if x[n].Protocol == x[n-1].Protocol && x[n].First <= x[n-1].Last+1 {
				t.Fatalf("%v are not the fewest: %v", a, x)
			}
		}
	}
	if _, some := intersectPorts(nil, nil); !some {
		t.Error("all ports have nothing in common")
	}
	if got := mergePorts([]PortRange{{TCP, Range{65535, 65535}}, {TCP, Range{0, 65535}}, {UDP, Range{0, 0}}}); len(
		got) != 2 {
		t.Errorf("%v", got)
	}
}

func TestSetsOfPrefixesAreIntersectedExactly(t *testing.T) {
	d := newDice(seedOf(t), 1)
	for range 2000 {
		some := func() []netip.Prefix {
			return aggregate(several(d, 1, 5, func() netip.Prefix { return netip.MustParsePrefix(d.cidr()) }))
		}
		a := some()
		b := some()
		both := intersectAll(a, b)
		for range 40 {
			x := d.remote()
			if contain(both, x) != (contain(a, x) && contain(b, x)) {
				t.Fatalf("%v and %v: %v contains %s: %t", a, b, both, x, contain(both, x))
			}
		}
	}
}
