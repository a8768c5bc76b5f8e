package slow

import (
	"net/netip"
	"time"

	"github.com/weftnet/weft/vswitch/frame"
)

// The TTLs of packets that the dataplane originates, as in VPP.
const (
	echoTTL  = 64
	errorTTL = 255
)

// packet holds the fields of an IPv4 or IPv6 packet that the ICMP code needs.
type packet struct {
	ip                  []byte
	source, destination netip.Addr
	protocol            uint8
	header              int // offset of the upper layer's header in ip
	later               bool
}

func parse(m *Message) (packet, bool) {
	e := frame.Ethernet(m.Bytes())
	if e.Type() == frame.TypeIPv4 {
		ip, ok := parse4(e.Payload(), m.Whole)
		if !ok {
			return packet{}, false
		}
		return packet{ip, ip.Source(), ip.Destination(), ip.Protocol(), ip.HeaderLen(), ip.FragmentOffset() != 0}, true
	}
	ip, ok := parse6(e.Payload(), m.Whole)
	if !ok {
		return packet{}, false
	}
	u, ok := ip.Upper()
	return packet{ip, ip.Source(), ip.Destination(), u.Protocol, u.Offset, u.Later}, ok
}

// parse4 parses an IPv4 packet. Of a packet that is longer than a message, it accepts the head.
func parse4(b []byte, whole bool) (frame.IPv4, bool) {
	if whole {
		ip, err := frame.ParseIPv4(b)
		return ip, err == nil
	}
	if len(b) < frame.IPv4Len {
		return nil, false
	}
	n := frame.IPv4(b).HeaderLen()
	return b, n >= frame.IPv4Len && n <= len(b)
}

// parse6 is parse4 for IPv6.
func parse6(b []byte, whole bool) (frame.IPv6, bool) {
	if whole {
		ip, err := frame.ParseIPv6(b)
		return ip, err == nil
	}
	return b, len(b) >= frame.IPv6Len
}

// received handles packets to the dataplane itself, also in fragments: it answers echo requests and refuses other
// protocols.
func (p *Path) received(m *Message, now time.Time) {
	if !m.Whole {
		p.drop(truncated)
		return
	}
	// An error quotes the packet, so its checksum must be whole; an echo's must be right.
	if !frame.Complete(m.Bytes(), &m.Virtio) {
		p.drop(badICMP)
		return
	}
	if f, ok := fragmentOf(m); ok {
		p.reassemble(m, f, now)
		return
	}
	p.receivedWhole(m, now)
}

// receivedWhole handles a packet that is no fragment.
func (p *Path) receivedWhole(m *Message, now time.Time) {
	k, ok := parse(m)
	if !ok {
		p.drop(badICMP)
		return
	}
	if k.protocol == k.icmp() {
		p.icmp.echo(m, k)
		return
	}
	p.icmp.refuse(m, now)
}

// icmp returns the protocol number of ICMP or ICMPv6, by the packet's family.
func (k packet) icmp() uint8 {
	if k.source.Is4() {
		return frame.ProtocolICMP
	}
	return frame.ProtocolICMPv6
}

func (ic *icmpResponder) echo(m *Message, k packet) {
	icmp, err := frame.ParseICMP(k.ip[k.header:])
	request := uint8(frame.ICMPEcho)
	reply := uint8(frame.ICMPEchoReply)
	pseudo := uint16(0)
	if !k.source.Is4() {
		request = frame.ICMP6Echo
		reply = frame.ICMP6EchoReply
		pseudo = pseudo6(k.source, k.destination, len(icmp))
	}
	switch {
	case err != nil || !icmp.ChecksumValid(pseudo):
		ic.drop(badICMP)
		return
	case icmp.Type() != request:
		ic.drop(ignored)
		return
	}
	out := ic.router.Inject()
	if out == nil {
		ic.drop(workerFull)
		return
	}
	body := ic.reply(out, m, reflect(k, k.destination, len(icmp), echoTTL))
	copy(body, icmp)
	frame.ICMP(body).SetType(reply, 0)
	// The sum of the pseudo header does not depend on the order of the addresses.
	frame.ICMP(body).PutChecksum(pseudo)
	ic.send(out, m, k.source)
}

// reflect returns the IP fields of an answer from source to the packet's sender.
func reflect(k packet, source netip.Addr, length int, ttl uint8) frame.IPFields {
	return frame.IPFields{TTL: ttl, Protocol: k.icmp(), Source: source, Destination: k.source, PayloadLen: length}
}

// reply writes the Ethernet and IP headers of an answer to m and returns the space for its ICMP message. The MACs suit
// an answer on the same link; routing rewrites them.
func (ic *icmpResponder) reply(out, m *Message, f frame.IPFields) []byte {
	e := frame.Ethernet(m.Bytes())
	header := frame.IPv6Len
	if f.Source.Is4() {
		header = frame.IPv4Len
	}
	b := out.Room()[:frame.EthernetLen+header+f.PayloadLen]
	frame.PutEthernet(b, e.Source(), e.Destination(), e.Type())
	if f.Source.Is4() {
		ic.identification++ // a worker may fragment the answer
		f.Identification = ic.identification
		frame.PutIPv4(b[frame.EthernetLen:], f)
	} else {
		frame.PutIPv6(b[frame.EthernetLen:], f)
	}
	out.SetLen(len(b))
	return b[frame.EthernetLen+header:]
}

// send routes an answer to m back to its sender. A link-local sender gets it on the link of m.
func (ic *icmpResponder) send(out, m *Message, to netip.Addr) {
	if to.Is6() && to.IsLinkLocalUnicast() {
		if i, ok := ic.router.Interface(m.Interface); ok {
			frame.Ethernet(out.Bytes()).Rewrite(frame.Ethernet(m.Bytes()).Source(), i.MAC)
		}
		ic.output(out, m.Interface)
		return
	}
	out.Reason = Route
	out.Interface = m.Interface
	out.Virtio = frame.Virtio{}
	ic.router.Injected()
}
