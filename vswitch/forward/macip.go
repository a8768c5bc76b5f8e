package forward

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"net/netip"
	"slices"

	"github.com/weftnet/weft/vswitch/frame"
)

// MACIPRule permits or denies frames with a source MAC that matches MAC under Mask and a source address in Prefix. A
// rule for an IPv4 prefix also matches ARP.
type MACIPRule struct {
	Permit    bool
	MAC, Mask frame.MAC
	Prefix    netip.Prefix // host bits are ignored
}

// MACIPFilter filters received frames by source MAC and source address, as VPP's MACIP ACLs do: a frame that no rule
// matches is dropped, whatever its type. It is immutable, and interfaces may share it.
//
// IP packets match by source address, without exceptions: a DHCP client needs a rule for 0.0.0.0/32, duplicate address
// detection one for ::/128, and neighbour discovery one for the link-local address. ARP matches by sender address, and
// the sender MAC must equal the source MAC. Unlike VPP, the filter also checks the target of neighbour advertisements
// and its MAC; otherwise a pod could claim any address on its link.
type MACIPFilter struct {
	rules []macipRule
}

// macipRule is a rule as words.
type macipRule struct {
	mac, macMask uint64
	prefix       aclPrefix
	metric       int
	v6, permit   bool
}

// sender is the source of a frame; an IPv4 address is in low alone.
type sender struct {
	mac, high, low uint64
	v6             bool
}

// NewMACIPFilter compiles rules. As in VPP their order is irrelevant: of several matching rules, the one decides that
// has the more specific mask and prefix length, or a combination of lengths that more rules have, then the later one.
func NewMACIPFilter(rules []MACIPRule) *MACIPFilter {
	f := &MACIPFilter{}
	for _, r := range rules {
		count := 0
		for _, other := range rules {
			if other.Mask == r.Mask && other.Prefix.Bits() == r.Prefix.Bits() &&
				other.Prefix.Addr().Is4() == r.Prefix.Addr().Is4() {
				count++
			}
		}
		f.rules = append(f.rules, compileMACIP(r, count))
	}
	slices.Reverse(f.rules)
	slices.SortStableFunc(f.rules, func(a, b macipRule) int { return cmp.Compare(b.metric, a.metric) })
	return f
}

// compileMACIP converts a rule to words; count is the number of rules with the same mask and prefix lengths.
func compileMACIP(r MACIPRule, count int) macipRule {
	mask := macWord(r.Mask)
	c := macipRule{
		mac:     macWord(r.MAC) & mask,
		macMask: mask,
		prefix:  compilePrefix(r.Prefix),
		v6:      r.Prefix.Addr().Is6(),
		permit:  r.Permit,
	}
	c.metric = r.Prefix.Bits() + bits.OnesCount64(mask) + 10*count
	if c.v6 {
		c.metric++
	}
	return c
}

func macWord(m frame.MAC) uint64 {
	return uint64(binary.BigEndian.Uint16(m[:]))<<32 | uint64(binary.BigEndian.Uint32(m[2:]))
}

// permits reports whether a received frame is permitted.
func (f *MACIPFilter) permits(b []byte) bool {
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
		s.v6 = true
		s.high = binary.BigEndian.Uint64(packet[8:])
		s.low = binary.BigEndian.Uint64(packet[16:])
		if !f.permitsAdvertisement(s, packet) {
			return false
		}
	default:
		return false
	}
	return f.match(s)
}

// permitsPlainIPv4 reports whether b is the head of an untagged IPv4 frame that is permitted.
func (f *MACIPFilter) permitsPlainIPv4(b []byte) bool {
	if len(b) < frame.EthernetLen+frame.IPv4Len || frame.Ethernet(b).Type() != frame.TypeIPv4 {
		return false
	}
	return f.match(sender{
		mac: macWord(frame.Ethernet(b).Source()),
		low: uint64(binary.BigEndian.Uint32(b[frame.EthernetLen+12:])),
	})
}

// permitsAdvertisement checks a neighbour advertisement and permits every other packet. A malformed advertisement is
// denied, because a receiver may parse it differently.
func (f *MACIPFilter) permitsAdvertisement(s sender, b []byte) bool {
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
	s.high = binary.BigEndian.Uint64(n[8:])
	s.low = binary.BigEndian.Uint64(n[16:])
	if mac, has := n.LinkAddress(frame.NDTargetLink); has && macWord(mac) != s.mac {
		return false
	}
	return f.match(s)
}

func (f *MACIPFilter) match(s sender) bool {
	for i := range f.rules {
		r := &f.rules[i]
		if s.mac&r.macMask == r.mac && r.prefix.contains(s.high, s.low) && s.v6 == r.v6 {
			return r.permit
		}
	}
	return false
}

// aclMiss returns the reason for a frame that the MACIP ACL of an interface denies: VPP has a node for each kind of
// packet. Outside of bridge domains VPP drops frames that are neither IP nor ARP before it checks ACLs.
func aclMiss(in *iface, b *frame.Buffer) reason {
	e, err := frame.ParseEthernet(b.Bytes())
	switch {
	case err != nil || in.l2.slot != 0:
		return dropMACIP
	case e.Type() == frame.TypeIPv4:
		return dropMACIP4
	case e.Type() == frame.TypeIPv6:
		return dropMACIP6
	case e.Type() == frame.TypeARP:
		return dropMACIP
	}
	return dropEthernetType
}
