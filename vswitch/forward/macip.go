package forward

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"net/netip"
	"slices"

	"github.com/weftnet/weft/vswitch/frame"
)

// MACIPRule permits or denies a sender: frames whose source MAC, under Mask, is MAC's and whose source address is in
// Prefix. A rule is of its prefix's family; one of IPv4 judges ARP, too.
type MACIPRule struct {
	Permit    bool
	MAC, Mask frame.MAC
	Prefix    netip.Prefix // its host bits mean nothing
}

// MACIPFilter judges what an interface receives by its senders, as VPP's MACIP ACLs do: a frame that no rule matches is
// dropped, whatever it is. It is never changed, and may be several interfaces'.
//
// IP is judged by its source, whatever that is: a DHCP client needs a rule for 0.0.0.0/32, duplicate address detection
// one for ::/128, and neighbour discovery one for the link-local address. ARP is judged by its sender, whose MAC must
// match in both places. Beyond VPP, a neighbour advertisement's target and its MAC must be ones that the sender may use:
// else a pod could take any address of its link by saying so.
type MACIPFilter struct {
	rules []macipRule
}

// macipRule is a rule as words to compare.
type macipRule struct {
	sender
	macMask, highMask, lowMask uint64
	metric                     int
	permit                     bool
}

// sender is who a frame says that it comes from; an IPv4 address is in low alone.
type sender struct {
	mac, high, low uint64
	v6             bool
}

// NewMACIPFilter makes a filter. As in VPP the rules' order means nothing: of several that match, the one whose kind, of
// masks' and prefixes' lengths, is more specific or has more rules decides, then the later one.
func NewMACIPFilter(rules []MACIPRule) *MACIPFilter {
	f := &MACIPFilter{}
	for _, r := range rules {
		count := 0
		for _, other := range rules {
			if other.Mask == r.Mask && other.Prefix.Bits() == r.Prefix.Bits() && other.Prefix.Addr().Is4() == r.Prefix.Addr().Is4() {
				count++
			}
		}
		f.rules = append(f.rules, compileMACIP(r, count))
	}
	slices.Reverse(f.rules)
	slices.SortStableFunc(f.rules, func(a, b macipRule) int { return cmp.Compare(b.metric, a.metric) })
	return f
}

// compileMACIP turns a rule into words; count is how many of its kind there are.
func compileMACIP(r MACIPRule, count int) macipRule {
	c := macipRule{permit: r.Permit, macMask: macWord(r.Mask)}
	c.metric = r.Prefix.Bits() + bits.OnesCount64(c.macMask) + 10*count
	if a := r.Prefix.Addr(); a.Is4() {
		raw := a.As4()
		c.low = uint64(binary.BigEndian.Uint32(raw[:]))
		c.lowMask = uint64(^uint32(0) << (32 - r.Prefix.Bits()))
	} else {
		raw := a.As16()
		c.v6 = true
		c.metric++
		c.high, c.low = binary.BigEndian.Uint64(raw[:]), binary.BigEndian.Uint64(raw[8:])
		c.highMask = ^uint64(0) << (64 - min(r.Prefix.Bits(), 64))
		c.lowMask = ^uint64(0) << (128 - max(r.Prefix.Bits(), 64))
	}
	c.mac = macWord(r.MAC) & c.macMask
	c.high, c.low = c.high&c.highMask, c.low&c.lowMask
	return c
}

func macWord(m frame.MAC) uint64 {
	return uint64(binary.BigEndian.Uint16(m[:]))<<32 | uint64(binary.BigEndian.Uint32(m[2:]))
}

// admits judges a frame.
func (f *MACIPFilter) admits(b []byte) bool {
	if len(b) < frame.EthernetLen {
		return false
	}
	e := frame.Ethernet(b)
	s := sender{mac: macWord(e.Source())}
	kind, at := e.Network()
	switch packet := b[at:]; {
	case kind == frame.TypeIPv4 && len(packet) >= frame.IPv4Len:
		s.low = uint64(binary.BigEndian.Uint32(packet[12:]))
	case kind == frame.TypeARP && len(packet) >= frame.ARPLen:
		a, err := frame.ParseARP(packet)
		if err != nil || a.SenderMAC() != e.Source() {
			return false
		}
		s.low = uint64(binary.BigEndian.Uint32(packet[14:]))
	case kind == frame.TypeIPv6 && len(packet) >= frame.IPv6Len:
		s.v6, s.high, s.low = true, binary.BigEndian.Uint64(packet[8:]), binary.BigEndian.Uint64(packet[16:])
		if !f.admitsAdvert(s, packet) {
			return false
		}
	default:
		return false
	}
	return f.permits(s)
}

// admitsIPv4 says that the frame that begins so is an untagged one of IPv4, and admitted.
func (f *MACIPFilter) admitsIPv4(b []byte) bool {
	if len(b) < frame.EthernetLen+frame.IPv4Len || frame.Ethernet(b).Type() != frame.TypeIPv4 {
		return false
	}
	return f.permits(sender{mac: macWord(frame.Ethernet(b).Source()), low: uint64(binary.BigEndian.Uint32(b[frame.EthernetLen+12:]))})
}

// admitsAdvert judges what a neighbour advertisement says; other packets it admits. One that is malformed nobody
// believes, but a receiver may read it in another way than we do.
func (f *MACIPFilter) admitsAdvert(s sender, b []byte) bool {
	p, err := frame.ParseIPv6(b)
	if err != nil {
		return false
	}
	u, ok := p.Upper()
	if !ok {
		return false
	}
	if u.Protocol != frame.ProtocolICMPv6 || u.Later || u.Offset >= len(p) || p[u.Offset] != frame.ICMP6Advert {
		return true
	}
	n, err := frame.ParseND(p[u.Offset:])
	if err != nil {
		return false
	}
	s.high, s.low = binary.BigEndian.Uint64(n[8:]), binary.BigEndian.Uint64(n[16:])
	if mac, has := n.LinkAddress(frame.NDTargetLink); has && macWord(mac) != s.mac {
		return false
	}
	return f.permits(s)
}

func (f *MACIPFilter) permits(s sender) bool {
	for i := range f.rules {
		r := &f.rules[i]
		if s.mac&r.macMask == r.mac && s.high&r.highMask == r.high && s.low&r.lowMask == r.low && s.v6 == r.v6 {
			return r.permit
		}
	}
	return false
}
