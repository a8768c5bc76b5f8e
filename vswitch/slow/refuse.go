package slow

import (
	"math/bits"
	"net/netip"
	"time"

	"github.com/weftnet/weft/vswitch/frame"
)

// The longest errors: RFC 1812 4.3.2.3 and RFC 4443 2.4 c.
const (
	longestError4 = 576
	longestError6 = 1280
)

// refusal holds the type, code and rest of an ICMP error.
type refusal struct {
	kind, code uint8
	rest       uint32
}

// icmpResponder answers packets with ICMP: echo replies and errors.
type icmpResponder struct {
	link
	errors         errorLimit
	identification uint16 // of the last IPv4 packet that the dataplane made
}

// refuse sends an ICMP error about m to its sender.
func (ic *icmpResponder) refuse(m *Message, now time.Time) {
	if m.Whole && !frame.Complete(m.Bytes(), &m.Virtio) {
		ic.drop(badICMP)
		return
	}
	k, ok := parse(m)
	if !ok || !k.owed(frame.Ethernet(m.Bytes()).Destination()) {
		ic.drop(noErrorOwed)
		return
	}
	r, ok := reason(m, k)
	if !ok {
		ic.drop(noErrorOwed)
		return
	}
	i, _ := ic.router.Interface(m.Interface)
	source, ok := i.errorSource(k.source)
	if m.Reason == Received {
		source = k.destination
		ok = true
	}
	if !ok {
		ic.drop(noErrorSource)
		return
	}
	if !ic.errors.take(m.Sender, now) {
		ic.drop(rateLimited)
		return
	}
	ic.sendError(m, k, source, r)
}

// errorSource selects the source of an error to target as VPP does (src/vnet/ip/ip_sas.c): the link-local address for a
// link-local target, else the address with the longest common prefix.
func (i Interface) errorSource(target netip.Addr) (source netip.Addr, ok bool) {
	if target.Is6() && target.IsLinkLocalUnicast() {
		return i.LinkLocal, i.LinkLocal.IsValid()
	}
	longest := -1
	for _, a := range i.Addresses {
		if a.Is4() != target.Is4() || a.IsLinkLocalUnicast() && a.Is6() {
			continue
		}
		if n := commonBits(a, target); n > longest {
			source = a
			longest = n
		}
	}
	return source, source.IsValid()
}

// commonBits returns the length of the common prefix of two addresses of one family.
func commonBits(a, b netip.Addr) int {
	x := a.AsSlice()
	y := b.AsSlice()
	for n := range x {
		if d := x[n] ^ y[n]; d != 0 {
			return 8*n + bits.LeadingZeros8(d)
		}
	}
	return a.BitLen()
}

func (ic *icmpResponder) sendError(m *Message, k packet, source netip.Addr, r refusal) {
	out := ic.router.Inject()
	if out == nil {
		ic.drop(workerFull)
		return
	}
	quote := k.ip[:min(len(k.ip), longestError6-frame.IPv6Len-frame.ICMPLen)]
	if k.source.Is4() {
		quote = k.ip[:min(len(k.ip), longestError4-frame.IPv4Len-frame.ICMPLen)]
	}
	body := ic.reply(out, m, reflect(k, source, frame.ICMPLen+len(quote), errorTTL))
	frame.ICMP(body).SetType(r.kind, r.code)
	frame.ICMP(body).SetRest(r.rest)
	copy(body[frame.ICMPLen:], quote)
	pseudo := uint16(0)
	if !k.source.Is4() {
		pseudo = pseudo6(source, k.source, len(body))
	}
	frame.ICMP(body).PutChecksum(pseudo)
	ic.send(out, m, k.source)
}

// reason returns the ICMP or ICMPv6 error for the reason of m, or false if no error is sent.
func reason(m *Message, k packet) (refusal, bool) {
	if k.source.Is4() {
		return reason4(m, k)
	}
	switch m.Reason {
	case Expired:
		return refusal{kind: frame.ICMP6TimeExceeded}, true
	case NoRoute, RouteUnreachable: // as VPP (ip_null_dpo.c), though RFC 4443 allows 3 for RouteUnreachable
		return refusal{kind: frame.ICMP6Unreachable, code: frame.Code6NoRoute}, true
	case HostUnreached:
		return refusal{kind: frame.ICMP6Unreachable, code: frame.Code6Address}, true
	case Prohibited:
		return refusal{kind: frame.ICMP6Unreachable, code: frame.Code6Prohibited}, true
	case TooBig:
		return refusal{kind: frame.ICMP6TooBig, rest: uint32(m.MTU)}, true
	case Received:
		if k.hasPorts() {
			return refusal{kind: frame.ICMP6Unreachable, code: frame.Code6Port}, true
		}
		return refusal{kind: frame.ICMP6Parameter, code: frame.Code6NextHeader, rest: nextHeaderOffset}, true
	}
	return refusal{}, false
}

// nextHeaderOffset is the offset of the next header field in the fixed IPv6 header.
const nextHeaderOffset = 6

func reason4(m *Message, k packet) (refusal, bool) {
	unreachable := func(code uint8) (refusal, bool) {
		return refusal{kind: frame.ICMPUnreachable, code: code}, true
	}
	switch m.Reason {
	case Expired:
		return refusal{kind: frame.ICMPTimeExceeded}, true
	case NoRoute:
		return unreachable(frame.CodeNet)
	case HostUnreached, RouteUnreachable:
		return unreachable(frame.CodeHost)
	case Prohibited:
		return unreachable(frame.CodeAdminProhibited)
	case TooBig:
		return refusal{frame.ICMPUnreachable, frame.CodeFragNeeded, uint32(m.MTU)}, true
	case Received:
		if k.hasPorts() {
			return unreachable(frame.CodePort)
		}
		return unreachable(frame.CodeProtocol)
	}
	return refusal{}, false
}

func (k packet) hasPorts() bool {
	return k.protocol == frame.ProtocolTCP || k.protocol == frame.ProtocolUDP
}

// owed applies RFC 1122 3.2.2 and RFC 4443 2.4 e: errors, later fragments and packets that are not unicast get no
// error.
func (k packet) owed(to frame.MAC) bool {
	s := k.source
	if k.later || to.IsMulticast() || k.destination.IsMulticast() || !s.IsValid() ||
		s.IsUnspecified() || s.IsMulticast() || s.IsLoopback() {
		return false
	}
	if k.protocol != k.icmp() {
		return true
	}
	icmp, err := frame.ParseICMP(k.ip[k.header:])
	if err != nil {
		return false
	}
	if s.Is4() {
		return !frame.IsICMPError(icmp.Type())
	}
	return !frame.IsICMP6Error(icmp.Type())
}

// The rate limit of ICMP errors per second to one sender, and its burst. RFC 4443 2.4 f asks for a token bucket; the
// rate is Linux's icmp_msgs_per_sec.
const (
	errorRate  = 1000
	errorBurst = 50
)

// errorLimit has a token bucket for each interface: with a common one a pod that causes many errors would exhaust the
// errors for other pods, such as the MTUs of their paths. It has at most one for each interface that ever existed.
type errorLimit map[uint32]*bucket

func (e errorLimit) take(sender uint32, now time.Time) bool {
	b := e[sender]
	if b == nil {
		b = &bucket{rate: errorRate, depth: errorBurst, tokens: errorBurst}
		e[sender] = b
	}
	return b.take(now)
}

// bucket is a token bucket.
type bucket struct {
	rate   float64 // tokens per second
	depth  float64
	tokens float64
	last   time.Time
}

func (b *bucket) take(now time.Time) bool {
	if !b.last.IsZero() {
		b.tokens = min(b.depth, b.tokens+b.rate*max(0, now.Sub(b.last).Seconds()))
	}
	b.last = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}
