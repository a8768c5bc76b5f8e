package forward

import (
	"fmt"
	"strings"

	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/slow"
)

// pathFormat formats a path as VPP's format_vlib_trace does: a line with the time and the name of each graph node, and
// indented lines with its work. The details are ours where VPP's have internal numbers.
type pathFormat struct {
	strings.Builder
	path   *tracePath
	nameOf func(uint32) string
}

func (p *tracePath) format(nameOf func(uint32) string) string {
	f := &pathFormat{path: p, nameOf: nameOf}
	f.node(p.node.String())
	f.line("%s: hw_if_index %d len %d%s", strings.TrimSuffix(p.node.String(), "-input"), p.in, p.length, gsoText(p.gso))
	f.node("ethernet-input")
	f.line("frame: flags 0x0, hw-if-index %d, sw-if-index %d", p.in, p.in)
	f.ethernet()
	for i := range p.steps[:p.n] {
		f.step(&p.steps[i])
	}
	if p.more {
		f.node("more")
		f.line("the path has more than %d steps", maxSteps)
	}
	return strings.TrimSuffix(f.String(), "\n")
}

func gsoText(size uint16) string {
	if size == 0 {
		return ""
	}
	return fmt.Sprintf(" gso_size %d", size)
}

func (f *pathFormat) node(name string) {
	at := f.path.at
	fmt.Fprintf(f, "%02d:%02d:%02d:%06d: %s\n", int(at.Hours()), int(at.Minutes())%60, int(at.Seconds())%60,
		at.Microseconds()%1e6, name)
}

func (f *pathFormat) line(format string, args ...any) { fmt.Fprintf(f, "  "+format+"\n", args...) }

// ethernet prints the headers of the frame as received.
func (f *pathFormat) ethernet() {
	e, err := frame.ParseEthernet(f.path.head)
	if err != nil {
		return
	}
	names := map[uint16]string{frame.TypeIPv4: "IP4", frame.TypeIPv6: "IP6", frame.TypeARP: "ARP"}
	name := names[e.Type()]
	if name == "" {
		name = fmt.Sprintf("0x%04x", e.Type())
	}
	f.line("%s: %s -> %s", name, e.Source(), e.Destination())
	kind, at := e.Network()
	p := f.path.head[min(at, len(f.path.head)):]
	switch {
	case kind == frame.TypeIPv4 && len(p) >= frame.IPv4Len:
		ip := frame.IPv4(p)
		f.line("%s: %s -> %s", protocolName(ip.Protocol()), ip.Source(), ip.Destination())
		f.line("  ttl %d, length %d", ip.TTL(), int(p[2])<<8|int(p[3]))
		f.upper(ip.Protocol(), p[min(ip.HeaderLen(), len(p)):])
	case kind == frame.TypeIPv6 && len(p) >= frame.IPv6Len:
		ip := frame.IPv6(p)
		f.line("%s: %s -> %s", protocolName(p[6]), ip.Source(), ip.Destination())
		f.line("  hop limit %d, payload length %d", ip.HopLimit(), int(p[4])<<8|int(p[5]))
		f.upper(p[6], p[frame.IPv6Len:])
	case kind == frame.TypeARP:
		f.arp(p)
	}
}

func (f *pathFormat) arp(p []byte) {
	a, err := frame.ParseARP(p)
	if err != nil {
		return
	}
	what := "request"
	if a.Operation() == frame.ARPReply {
		what = "reply"
	}
	f.line("%s, type ethernet/IP4", what)
	f.line("  %s/%s -> %s", a.SenderMAC(), a.Sender(), a.Target())
}

func protocolName(n uint8) string {
	switch n {
	case frame.ProtocolICMP:
		return "ICMP"
	case frame.ProtocolICMPv6:
		return "ICMP6"
	case frame.ProtocolTCP:
		return "TCP"
	case frame.ProtocolUDP:
		return "UDP"
	}
	return fmt.Sprintf("protocol %d", n)
}

func (f *pathFormat) upper(protocol uint8, p []byte) {
	switch {
	case (protocol == frame.ProtocolICMP || protocol == frame.ProtocolICMPv6) && len(p) >= frame.ICMPLen:
		f.line("%s type %d code %d", protocolName(protocol), p[0], p[1])
	case (protocol == frame.ProtocolTCP || protocol == frame.ProtocolUDP) && len(p) >= frame.UDPLen:
		f.line("%s: %d -> %d", protocolName(protocol), int(p[0])<<8|int(p[1]), int(p[2])<<8|int(p[3]))
	}
}

func (f *pathFormat) step(s *traceStep) {
	switch s.kind {
	case stepMACIP:
		f.node("l2-input-acl")
		f.line("MAC and source address permitted")
	case stepACL, stepDenied, stepSession, stepSessionDenied, stepSessionsFull:
		f.accessList(s)
	case stepSub:
		f.node("ethernet-input")
		f.line("tags of sub-interface %s", f.nameOf(s.iface))
	case stepBridge:
		f.node("l2-input")
		f.line("l2-input: bd_id %d dst %s", s.number, s.mac)
	case stepMember:
		f.node("l2-fwd")
		f.line("known MAC on %s", f.nameOf(s.iface))
	case stepFlood:
		f.node("l2-flood")
		f.line("flooded in a bridge domain of %d members", s.number)
	case stepBVI:
		f.node("l2-bvi")
		f.line("routed as received on %s", f.nameOf(s.iface))
	case stepRewrite:
		f.node("ip-rewrite")
		f.line("to %s by %s", s.mac, f.nameOf(s.iface))
	case stepEncap:
		f.node("vxlan-encap")
		f.line("VXLAN encap to %s", f.nameOf(s.iface))
	case stepDecap:
		f.node("vxlan-input")
		f.line("VXLAN decap from %s", f.nameOf(s.iface))
	case stepPolicer:
		f.policer(s)
	case stepKept:
		f.node("ip-local-full-reassembly")
		f.line("kept until the other fragments of the packet are there")
	case stepSend:
		f.node(f.nameOf(s.iface) + "-output")
		f.line("%s", f.nameOf(s.iface))
	case stepLookup, stepTunnelLookup:
		f.lookup(s)
	case stepPunt, stepDrop:
		f.ending(s)
	}
}

// policer prints the decision of a policer. A frame without packets that conform is dropped.
func (f *pathFormat) policer(s *traceStep) {
	node := "policer-input"
	if s.output {
		node = "policer-output"
	}
	f.node(node)
	if s.number == 0 {
		f.line("%s: exceeds the rate", f.nameOf(s.iface))
		return
	}
	f.line("%s: %d packets conform", f.nameOf(s.iface), s.number)
}

// accessList prints the decision of the ACLs of an interface.
func (f *pathFormat) accessList(s *traceStep) {
	node := "acl-plugin-in"
	if s.output {
		node = "acl-plugin-out"
	}
	f.node(node)
	rule := "no rule of the ACLs"
	if s.acl != nil {
		rule = fmt.Sprintf("rule %d of ACL %d (%s)", s.number, s.acl.index, s.acl.name)
	}
	switch s.kind {
	case stepSession:
		f.line("%s: permitted by a session", f.nameOf(s.iface))
	case stepSessionDenied:
		f.line("%s: denied: the ACLs no longer permit its connection", f.nameOf(s.iface))
	case stepACL:
		f.line("%s: permitted by %s", f.nameOf(s.iface), rule)
	case stepDenied:
		f.line("%s: denied by %s", f.nameOf(s.iface), rule)
	case stepSessionsFull:
		f.line("%s: permitted by %s, but there is no room for a session", f.nameOf(s.iface), rule)
	}
}

func (f *pathFormat) lookup(s *traceStep) {
	f.node("ip-lookup")
	table := "table of the tunnel"
	if s.kind == stepLookup {
		table = fmt.Sprintf("table %d", s.number)
	}
	switch {
	case s.iface == NoInterface:
		f.line("%s: no path to an interface", table)
	case s.addr.IsValid():
		f.line("%s: via %s %s", table, s.addr, f.nameOf(s.iface))
	default:
		f.line("%s: via %s", table, f.nameOf(s.iface))
	}
}

func (f *pathFormat) ending(s *traceStep) {
	if s.kind == stepPunt {
		r := slow.Reason(s.number)
		f.node(tracedPunts[r])
		f.line("handled by the dataplane: %s", puntNames[r])
		return
	}
	f.node("error-drop")
	f.line("rx:%s", f.nameOf(f.path.in))
	f.node("drop")
	node, text, _ := strings.Cut(dropText(reason(s.number)), "/")
	f.line("%s: %s", node, text)
}

// noErrorReasons are the drops without an error counter of their own, in words.
var noErrorReasons = map[reason]string{
	dropNoIP4: "ip4-input/the interface has no IPv4 address", dropNoIP6: "ip6-input/IPv6 is off on the interface",
	dropRoute: "ip-lookup/a route drops the packet", dropNoRoute4: "ip4-lookup/no route",
	dropNoRoute6:    "ip6-lookup/no route",
	dropUnreachable: "ip-lookup/a route is unreachable", dropProhibited: "ip-lookup/a route prohibits the packet",
}

func dropText(r reason) string {
	if text, ok := noErrorReasons[r]; ok {
		return text
	}
	return reasonNames[r]
}
