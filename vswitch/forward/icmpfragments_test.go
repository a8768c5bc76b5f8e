package forward

import (
	"net/netip"
	"testing"

	"github.com/weftnet/weft/vswitch/frame"
)

// Rules for ICMP errors and neighbour discovery, as all policies have them, let no fragment pass: no host sends such fragments. Those of an echo
// pass by a rule that permits it.
func TestRulesForErrorsPermitNoFragments(t *testing.T) {
	any4, any6 := netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")
	later4 := packet4(frame.ProtocolICMP, nil, 1, make([]byte, 8))
	later6 := packet6(44, fragmentHeader(frame.ProtocolICMPv6, 1, false), make([]byte, 8))
	for name, tt := range map[string]struct {
		any      netip.Prefix
		protocol uint8
		types    PortRange
		packet   []byte
		passes   bool
	}{
		"unreachable":              {any4, frame.ProtocolICMP, PortRange{3, 3}, later4, false},
		"time exceeded and others": {any4, frame.ProtocolICMP, PortRange{11, 12}, later4, false},
		"echo":                     {any4, frame.ProtocolICMP, PortRange{8, 8}, later4, true},
		"types up to redirect":     {any4, frame.ProtocolICMP, PortRange{0, 4}, later4, true},
		"all of ICMP":              {any4, frame.ProtocolICMP, PortRange{0, 255}, later4, true},
		"errors of IPv6":           {any6, frame.ProtocolICMPv6, PortRange{1, 4}, later6, false},
		"neighbour discovery":      {any6, frame.ProtocolICMPv6, PortRange{135, 136}, later6, false},
		"echo of IPv6":             {any6, frame.ProtocolICMPv6, PortRange{128, 129}, later6, true},
		"errors and echo of IPv6":  {any6, frame.ProtocolICMPv6, PortRange{0, 133}, later6, true},
		"all of ICMPv6":            {any6, frame.ProtocolICMPv6, PortRange{0, 255}, later6, true},
	} {
		rule := ACLRule{Permit: true, Source: tt.any, Destination: tt.any, Protocol: tt.protocol, Sources: tt.types, Destinations: PortRange{0, 255}}
		f := NewACLFilter(1, "closed", []ACLRule{rule, {Source: tt.any, Destination: tt.any}})
		var p aclPacket
		if p.parse(tt.packet) != parsedPacket || !p.upper.later {
			t.Fatalf("%s: not parsed as a later fragment", name)
		}
		if passes := f.rules[f.find(&p)].action != aclDeny; passes != tt.passes {
			t.Errorf("%s: a fragment passes: %t", name, passes)
		}
		rule.Permit = false
		f = NewACLFilter(1, "open", []ACLRule{rule, {Permit: true, Source: tt.any, Destination: tt.any}})
		if f.rules[f.find(&p)].action != aclDeny {
			t.Errorf("%s: a fragment passes although the messages are denied", name)
		}
	}
}
