package forward

import (
	"net/netip"
	"testing"

	"github.com/weftnet/weft/vswitch/frame"
)

// Rules for ICMP errors and neighbour discovery, as all policies have them, let no fragment pass: no host sends such
// fragments. Those of an echo pass by a rule that permits it.
func TestRulesForErrorsPermitNoFragments(t *testing.T) {
	any4 := netip.MustParsePrefix("0.0.0.0/0")
	any6 := netip.MustParsePrefix("::/0")
	const moreFragments = 0x2000
	later4 := packet4(frame.ProtocolICMP, nil, 1, make([]byte, 8))
	later6 := packet6(44, fragmentHeader(frame.ProtocolICMPv6, 1, false), make([]byte, 8))
	first4 := func(kind uint8) []byte { return packet4(frame.ProtocolICMP, nil, moreFragments, icmpMessage(kind)) }
	first6 := func(kind uint8, more bool) []byte {
		return packet6(44, fragmentHeader(frame.ProtocolICMPv6, 0, more), icmpMessage(kind))
	}
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
		"first of unreachable":     {any4, frame.ProtocolICMP, PortRange{3, 3}, first4(3), false},
		"first of an echo":         {any4, frame.ProtocolICMP, PortRange{8, 8}, first4(8), true},
		"first of an IPv6 error":   {any6, frame.ProtocolICMPv6, PortRange{1, 4}, first6(1, true), false},
		"first of discovery":       {any6, frame.ProtocolICMPv6, PortRange{135, 136}, first6(135, true), false},
		"first of an IPv6 echo":    {any6, frame.ProtocolICMPv6, PortRange{128, 129}, first6(128, true), true},
		"one that is all of it":    {any6, frame.ProtocolICMPv6, PortRange{1, 4}, first6(1, false), true},
	} {
		rule := ACLRule{
			Permit:       true,
			Source:       tt.any,
			Destination:  tt.any,
			Protocol:     tt.protocol,
			Sources:      tt.types,
			Destinations: PortRange{0, 255},
		}
		f := NewACLFilter(1, "closed", []ACLRule{rule, {Source: tt.any, Destination: tt.any}})
		var p aclPacket
		if p.parse(tt.packet) != parsedPacket {
			t.Fatalf("%s: not parsed", name)
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
