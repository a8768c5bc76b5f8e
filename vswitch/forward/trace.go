package forward

import (
	"fmt"
	"strings"

	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/slow"
)

// traceDepth is the number of frames in the trace of a queue.
const traceDepth = 64

// tracer keeps the last frames that a queue received. Only the owner of the queue uses it.
type tracer struct {
	lines [traceDepth]traceLine
	next  uint64
}

// traceBytes is the number of bytes kept of a frame: Ethernet, IPv6, TCP and some TCP options.
const traceBytes = 88

// traceLine is a received frame with its verdict. It fills two cache lines.
type traceLine struct {
	head    [traceBytes]byte
	length  uint32
	headLen uint8
	detail  traceDetail
	virtio  frame.Virtio
	result  verdict
}

func (t *tracer) begin(b *frame.Buffer) *traceLine {
	l := &t.lines[t.next%traceDepth]
	t.next++
	l.length = uint32(b.Len())
	l.virtio = b.Virtio
	l.headLen = uint8(b.CopyHead(l.head[:]))
	return l
}

// last returns the newest n lines, oldest first.
func (t *tracer) last(n int) []traceLine {
	n = int(min(uint64(max(n, 0)), t.next, traceDepth))
	out := make([]traceLine, 0, n)
	for at := t.next - uint64(n); at < t.next; at++ {
		out = append(out, t.lines[at%traceDepth])
	}
	return out
}

// traces shows the frames that workers recorded.
type traces struct{ *published }

// Trace returns the last frames received on an interface's port, one line each, oldest first: the headers and the
// verdict. It returns at most n and at most 64 frames of each queue, one queue after the other, and nil if there is no
// port.
func (t *traces) Trace(index uint32, n int) []string {
	a := t.ports.Load().at(index)
	if a == nil {
		return nil
	}
	var lines []traceLine
	for _, i := range a.rxQueues {
		if !i.owner.requests.post(func(*worker) { lines = append(lines, i.trace.last(n)...) }) {
			return nil
		}
	}
	out := make([]string, len(lines))
	for i := range lines {
		out[i] = lines[i].String()
	}
	return out
}

// puntNames are the names of punt reasons in a trace.
var puntNames = map[slow.Reason]string{
	slow.ARP: "arp", slow.Discovery: "neighbour discovery", slow.Received: "local",
	slow.Unresolved: "neighbour unknown",
	slow.Expired:    "icmp time exceeded", slow.NoRoute: "icmp no route", slow.HostUnreached: "icmp host unreachable",
	slow.RouteUnreachable: "icmp route unreachable",
	slow.Prohibited:       "icmp prohibited", slow.TooBig: "icmp too big",
}

func (l *traceLine) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%d bytes", l.length)
	if l.virtio.IsGSO() {
		fmt.Fprintf(&s, " gso %d", l.virtio.GSOSize)
	}
	decodeEthernet(&s, l.head[:l.headLen])
	s.WriteString(" -> ")
	d := l.result
	switch {
	case d.drop != noDrop:
		fmt.Fprintf(&s, "dropped: %s", reasonNames[d.drop])
	case d.punt != 0:
		fmt.Fprintf(&s, "slow path: %s", puntNames[d.punt])
	case l.detail == detailPuntedByBVI:
		s.WriteString("slow path by the BVI")
	case l.detail == detailFlooded:
		s.WriteString("flooded")
	case l.detail == detailKept:
		s.WriteString("kept until the other fragments of the packet are there")
	case d.out != nil:
		fmt.Fprintf(&s, "sent on interface %d", d.out.index)
		if d.mtu != 0 {
			s.WriteString(" in fragments")
		}
	}
	return s.String()
}

func decodeEthernet(s *strings.Builder, b []byte) {
	e, err := frame.ParseEthernet(b)
	if err != nil {
		return
	}
	fmt.Fprintf(s, ", %s > %s", e.Source(), e.Destination())
	p := e.Payload()
	switch {
	case e.Type() == frame.TypeARP:
		decodeARP(s, p)
	case e.Type() == frame.TypeIPv4 && len(p) >= frame.IPv4Len:
		ip := frame.IPv4(p)
		fmt.Fprintf(s, ", ip4 %s > %s ttl %d", ip.Source(), ip.Destination(), ip.TTL())
		decodeUpper(s, ip.Protocol(), p[min(ip.HeaderLen(), len(p)):])
	case e.Type() == frame.TypeIPv6 && len(p) >= frame.IPv6Len:
		ip := frame.IPv6(p)
		fmt.Fprintf(s, ", ip6 %s > %s hop limit %d", ip.Source(), ip.Destination(), ip.HopLimit())
		if u, ok := ip.Upper(); ok {
			decodeUpper(s, u.Protocol, p[u.Offset:])
		}
	default:
		fmt.Fprintf(s, ", type %#04x", e.Type())
	}
}

func decodeARP(s *strings.Builder, b []byte) {
	a, err := frame.ParseARP(b)
	if err != nil {
		s.WriteString(", arp malformed")
		return
	}
	verb := "who has"
	if a.Operation() == frame.ARPReply {
		verb = "reply to"
	}
	fmt.Fprintf(s, ", arp %s %s, sender %s is at %s", verb, a.Target(), a.Sender(), a.SenderMAC())
}

func decodeUpper(s *strings.Builder, protocol uint8, b []byte) {
	switch {
	case (protocol == frame.ProtocolICMP || protocol == frame.ProtocolICMPv6) && len(b) >= frame.ICMPLen:
		fmt.Fprintf(s, ", icmp type %d code %d", b[0], b[1])
	case protocol == frame.ProtocolTCP && len(b) >= frame.TCPLen:
		t := frame.TCP(b)
		fmt.Fprintf(s, ", tcp %d > %d", t.SourcePort(), t.DestinationPort())
	case protocol == frame.ProtocolUDP && len(b) >= frame.UDPLen:
		u := frame.UDP(b)
		fmt.Fprintf(s, ", udp %d > %d", u.SourcePort(), u.DestinationPort())
	default:
		fmt.Fprintf(s, ", protocol %d", protocol)
	}
}
