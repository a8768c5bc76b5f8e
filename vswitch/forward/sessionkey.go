package forward

import (
	"math/bits"
	"math/rand/v2"

	"github.com/weftnet/weft/vswitch/frame"
)

// sessionKey identifies a session. The end with the lower address and port is a, so both directions have the same key.
// Of an ICMP echo both ports are its identifier, and a sends the requests. Keys are words, because one is made, hashed
// and compared for each packet.
type sessionKey struct {
	aHigh, aLow, bHigh, bLow uint64
	upper                    uint64 // ports of a and b, protocol, kind: 16, 16, 8 and 8 bits
}

// ofFragments marks the kind of the session of the later fragments between two addresses: they have no ports. The rest
// of a kind is the family.
const ofFragments = 2

func upperKey(aPort, bPort uint16, protocol, kind uint8) uint64 {
	return uint64(aPort)<<32 | uint64(bPort)<<16 | uint64(protocol)<<8 | uint64(kind)
}

func (k *sessionKey) aPort() uint16   { return uint16(k.upper >> 32) }
func (k *sessionKey) bPort() uint16   { return uint16(k.upper >> 16) }
func (k *sessionKey) protocol() uint8 { return uint8(k.upper >> 8) }
func (k *sessionKey) family() uint8   { return uint8(k.upper) &^ ofFragments }
func (k *sessionKey) fragments() bool { return k.upper&ofFragments != 0 }

// equals has no branches: most compared keys are equal.
func (k *sessionKey) equals(o *sessionKey) bool {
	return (k.aLow^o.aLow)|(k.bLow^o.bLow)|(k.upper^o.upper)|(k.aHigh^o.aHigh)|(k.bHigh^o.bHigh) == 0
}

// sessionSeed keys the hashes. It is the same for all tables, so that a packet is hashed once for the interfaces that
// it passes.
var sessionSeed = rand.Uint64()

// hash returns the hash of a key: its high bits select the shard.
func (k *sessionKey) hash() uint64 {
	h := sessionSeed
	if k.upper&acl6 != 0 {
		h = mix(mix(mix(mix(h, k.aHigh), k.bHigh), k.aLow), k.bLow)
	} else {
		h = mix(h, k.aLow<<32|k.bLow)
	}
	return mix(h, k.upper)
}

// packetKey is the key of a packet's session.
type packetKey struct {
	sessionKey
	hash  uint64
	fromB bool // b sends the packet
	valid bool // false: packets of its kind have no session
	known bool // false: the other fields are not set yet
}

// key returns the key of a packet's session. It is computed once.
func (p *aclPacket) key() *packetKey {
	k := &p.session
	if k.known {
		return k
	}
	k.known = true
	u := &p.upper
	aPort := u.source
	bPort := u.target
	kind := p.family
	var swap uint64
	switch k.valid = true; {
	case u.later:
		kind |= ofFragments
		swap = p.swapped(aPort, bPort)
	case !u.hasPorts, u.protocol == frame.ProtocolTCP && !u.hasFlags:
		k.valid = false
		return k
	case u.protocol == icmpOf[p.family]:
		aPort = u.id
		bPort = u.id
		if isEchoReply(p.family, u.source) {
			swap = 1
		} else if !isEcho(p.family, u.source) {
			k.valid = false
			return k
		}
	default:
		swap = p.swapped(aPort, bPort)
	}
	// Branches would be mispredicted: which end is a differs from flow to flow.
	k.fromB = swap != 0
	high := (p.sourceHigh ^ p.targetHigh) & -swap
	low := (p.sourceLow ^ p.targetLow) & -swap
	ports := (aPort ^ bPort) & -uint16(swap)
	k.aHigh = p.sourceHigh ^ high
	k.bHigh = p.targetHigh ^ high
	k.aLow = p.sourceLow ^ low
	k.bLow = p.targetLow ^ low
	k.upper = upperKey(aPort^ports, bPort^ports, u.protocol, kind)
	k.hash = k.sessionKey.hash()
	return k
}

// swapped returns 1 if the target of a packet has the lower address and port, otherwise 0.
func (p *aclPacket) swapped(source, target uint16) (borrow uint64) {
	_, borrow = bits.Sub64(uint64(target), uint64(source), 0)
	_, borrow = bits.Sub64(p.targetLow, p.sourceLow, borrow)
	_, borrow = bits.Sub64(p.targetHigh, p.sourceHigh, borrow)
	return borrow
}

func isEcho(family uint8, kind uint16) bool {
	return family == acl4 && kind == frame.ICMPEcho || family == acl6 && kind == frame.ICMP6Echo
}

func isEchoReply(family uint8, kind uint16) bool {
	return family == acl4 && kind == frame.ICMPEchoReply || family == acl6 && kind == frame.ICMP6EchoReply
}

// opensSession reports whether a packet opens a session if a rule with Reflect permits it.
func (p *aclPacket) opensSession() bool {
	u := &p.upper
	if u.later || u.protocol == icmpOf[p.family] && !isEcho(p.family, u.source) ||
		u.protocol == frame.ProtocolTCP && u.flags&tcpRST != 0 {
		return false
	}
	return p.key().valid
}

// packet returns a packet of the session's opener, without TCP flags, to find the rule that permits the session.
func (s *session) packet() (p aclPacket) {
	source := s.aPort()
	target := s.bPort()
	p.flowWords = flowWords{s.aHigh, s.aLow, s.bHigh, s.bLow, 0}
	if s.flags&openedByB != 0 {
		source, target = target, source
		p.flowWords = flowWords{s.bHigh, s.bLow, s.aHigh, s.aLow, 0}
	}
	p.family = s.family()
	p.upper = upperLayer{protocol: s.protocol(), later: s.fragments(), hasPorts: true, source: source, target: target}
	if s.protocol() == icmpOf[p.family] {
		p.upper.id = source
		p.upper.source = frame.ICMPEcho
		p.upper.target = 0
		if p.family == acl6 {
			p.upper.source = frame.ICMP6Echo
		}
	}
	p.ports = uint32(p.upper.source)<<16 | uint32(p.upper.target)
	return p
}
