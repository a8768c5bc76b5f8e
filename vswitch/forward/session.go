package forward

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
	"runtime"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/vswitch/frame"
)

// DefaultSessionLimit is the default number of sessions that an interface can have: 2 MiB of memory if all are in use.
const DefaultSessionLimit = 1 << 15

// maxSessionLimit is the largest limit: the sessions of a shard have 16-bit numbers.
const maxSessionLimit = 1 << 19

// Timeouts of sessions without packets, in seconds. As in VPP the timeouts of TCP depend on the flags of both sides.
//
//	open --packet--> transient --answer--> settled --RST, or FIN of both sides--> transient
//	                     \-------timeout-------\--timeout--> removed
const (
	transientTimeout = 120 // handshakes, closed connections, unanswered packets, echo requests
	settledTimeout   = 600
	tcpTimeout       = 24 * 3600 // of an established connection
	fragmentTimeout  = 60        // of a fragmented packet (RFC 8200 4.5)
	// pressedTimeout is the time after which a settled session may be replaced if the table is full.
	pressedTimeout = 300
)

// sessionTable holds the sessions of an interface. Sessions are spread over shards by a keyed hash. If a shard is full,
// a new session replaces the transient one that has been idle longest, or a settled one that has been idle for long if
// the shard's hand finds one, or one of an address that opened a large share; otherwise the packet is dropped. So an
// interface that opens many sessions harms its own sessions only, and established ones of addresses with few of them
// last.
//
// The table's memory is reserved at once and populated with use. Workers do not allocate.
type sessionTable struct {
	shared bool // by several workers, which lock the shards
	shards [sessionShards]sessionShard
	memory sessionMemory
}

const (
	shardOrder    = 4
	sessionShards = 1 << shardOrder
	// shardSlack is the divisor of the additional room of a shard: sessions are not spread evenly.
	shardSlack = 8
	// examined is the number of sessions that a new session examines to find room in a shard that is full of settled
	// ones.
	examined = 16
	// swept is the number of sessions that each new session examines for expiry.
	swept = 2
)

type sessionShard struct {
	mu       sync.Mutex
	buckets  []uint16 // numbers of the first sessions, from 1; the length is a power of two
	sessions []session
	used     uint16 // sessions that have been used
	free     uint16 // the first of the used sessions that are free, or 0
	hand     uint16 // the session that is examined next
	oldest   uint16 // of the sessions that are not settled, by their last packets; or 0
	newest   uint16
	live     uint16
}

// session is a session; the zero value is free.
type session struct {
	sessionKey
	flags      sessionFlags
	next       uint16 // in the bucket, or in the list of free sessions
	generation uint32 // of the lists that permitted it
	seen       uint32 // second of the last packet
	older      uint16 // in the list of sessions that are not settled
	newer      uint16
}

type sessionFlags uint16

const (
	openedByB  sessionFlags = 1 << iota
	openedOut               // the output lists permitted it
	ackOpener               // the opener sent a TCP segment with ACK
	answered                // the other side sent a packet, of TCP one with ACK
	finOpener               // the opener sent a FIN
	finAnswer               // the other side sent a FIN
	resetFlags              // a side sent an RST
	inUse
	denied // of a TCP connection: the lists no longer permit it
)

// TCP flags.
const (
	tcpFIN = 1 << iota
	tcpSYN
	tcpRST
	_
	tcpACK
)

// sessionMemory is the memory of a table outside of the Go heap: most of it is never used, and the collector need not
// know it.
type sessionMemory []byte

func newSessionTable(limit int, shared bool) *sessionTable {
	perShard := limit / sessionShards
	perShard += perShard/shardSlack + 1
	buckets := 1 << (bits.Len(uint(perShard)) - 1)
	t := &sessionTable{shared: shared}
	each := perShard*int(unsafe.Sizeof(session{})) + buckets*2
	each = (each + 7) &^ 7
	memory, err := unix.Mmap(-1, 0, each*sessionShards, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		words := make([]uint64, each*sessionShards/8) // such as after too many mappings
		memory = unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), len(words)*8)
	} else {
		runtime.AddCleanup(t, func(m sessionMemory) { _ = unix.Munmap(m) }, sessionMemory(memory))
	}
	t.memory = memory
	for n := range t.shards {
		at := unsafe.Pointer(&memory[n*each])
		t.shards[n].sessions = unsafe.Slice((*session)(at), perShard)
		t.shards[n].buckets = unsafe.Slice((*uint16)(unsafe.Add(at, perShard*int(unsafe.Sizeof(session{})))), buckets)
	}
	return t
}

// sessionLimit returns the limit of a configuration.
func sessionLimit(configured int) int {
	if configured <= 0 {
		return DefaultSessionLimit
	}
	return min(configured, maxSessionLimit)
}

func (s *session) direction() direction {
	if s.flags&openedOut != 0 {
		return outward
	}
	return inward
}

// settled reports whether both sides want the session.
func (s *session) settled() bool {
	switch {
	case s.fragments() || s.protocol() == icmpOf[s.family()]:
		return false
	case s.protocol() == frame.ProtocolTCP:
		return s.flags&(ackOpener|answered|resetFlags) == ackOpener|answered &&
			s.flags&(finOpener|finAnswer) != finOpener|finAnswer
	}
	return s.flags&answered != 0
}

func (s *session) timeout() uint32 {
	switch {
	case s.fragments():
		return fragmentTimeout
	case !s.settled():
		return transientTimeout
	case s.protocol() == frame.ProtocolTCP:
		return tcpTimeout
	}
	return settledTimeout
}

// idle returns the seconds since the last packet. Workers read the clock at different times, so a packet may be from
// the future.
func (s *session) idle(now uint32) uint32 { return uint32(max(int32(now-s.seen), 0)) }

func (s *session) expired(now uint32) bool { return s.idle(now) >= s.timeout() }

// update notes a packet of the session.
func (s *session) update(u *upperLayer, fromOpener bool, now uint32) {
	s.seen = now
	if s.protocol() != frame.ProtocolTCP || s.fragments() {
		if !fromOpener {
			s.flags |= answered
		}
		return
	}
	ack := ackOpener
	fin := finOpener
	if !fromOpener {
		ack = answered
		fin = finAnswer
	}
	if fromOpener && u.flags&(tcpSYN|tcpACK) == tcpSYN && !s.settled() {
		s.flags &^= ackOpener | answered | finOpener | finAnswer | resetFlags // a new connection between the same ports
	}
	if u.flags&tcpACK != 0 {
		s.flags |= ack
	}
	if u.flags&tcpFIN != 0 {
		s.flags |= fin
	}
	if u.flags&tcpRST != 0 {
		s.flags |= resetFlags
	}
}

// news reports whether a packet may change more of a session than its time. Most packets do not.
func (s *session) news(u *upperLayer, fromOpener bool) bool {
	known := ackOpener
	if !fromOpener {
		known = answered
	}
	switch {
	case s.protocol() != frame.ProtocolTCP || s.fragments():
		return !fromOpener && s.flags&answered == 0
	case u.flags&(tcpSYN|tcpFIN|tcpRST) != 0:
		return true
	}
	return u.flags&tcpACK != 0 && s.flags&known == 0
}

// shard returns the shard of a hash, locked if workers share the table.
func (t *sessionTable) shard(h uint64) *sessionShard {
	s := &t.shards[h>>(64-shardOrder)]
	if t.shared {
		s.mu.Lock()
	}
	return s
}

func (t *sessionTable) unlock(s *sessionShard) {
	if t.shared {
		s.mu.Unlock()
	}
}

// membership is whether a packet belongs to a session.
type membership uint8

const (
	ofNoSession     membership = iota
	ofSession                  // which permits the packet
	ofDeniedSession            // a TCP connection that the lists no longer permit
)

// pass finds the session of a packet, which a packet of either direction continues. A session that the lists no longer
// permit ends. That of a TCP connection stays as denied until the other side begins a new connection: otherwise the
// next packet of the other side, which its own list permits, would open another session, and the connection would go
// on.
func (t *sessionTable) pass(p *aclPacket, a *accessLists, now uint32) membership {
	k := p.key()
	if !k.valid {
		return ofNoSession
	}
	s := t.shard(k.hash)
	n := s.find(k.hash, &k.sessionKey)
	if n == 0 {
		t.unlock(s)
		return ofNoSession
	}
	e := &s.sessions[n-1]
	fromOpener := k.fromB == (e.flags&openedByB != 0)
	if e.seen == now && e.generation == a.generation && e.flags&denied == 0 && !e.news(&p.upper, fromOpener) &&
		!p.upper.first {
		t.unlock(s)
		return ofSession // most packets
	}
	opened := e.direction()
	m := s.follow(n, p, a, now)
	t.unlock(s)
	if m == ofSession && p.upper.first {
		t.openFragments(p, opened, fromOpener, moment{a.generation, now})
	}
	return m
}

// follow notes a packet of a session, or ends the session.
func (s *sessionShard) follow(n uint16, p *aclPacket, a *accessLists, now uint32) membership {
	e := &s.sessions[n-1]
	fromOpener := p.session.fromB == (e.flags&openedByB != 0)
	switch {
	case e.seen != now && e.expired(now), !e.permitted(a) && !p.staysDenied(fromOpener):
		s.remove(p.session.hash, n)
		return ofNoSession
	case e.flags&denied != 0:
		s.touch(n, now)
		return ofDeniedSession
	case e.seen != now || e.news(&p.upper, fromOpener):
		s.update(n, &p.upper, fromOpener, now)
	}
	return ofSession
}

// staysDenied reports whether a packet of a denied session leaves it denied: each TCP segment, except the first one of
// a connection of the other side. A SYN of the opener must not remove the session, because the opener could then
// continue the denied connection.
func (p *aclPacket) staysDenied(fromOpener bool) bool {
	u := &p.upper
	return u.protocol == frame.ProtocolTCP && !u.later && (fromOpener || u.flags&(tcpSYN|tcpACK) != tcpSYN)
}

// permitted reports whether the lists of an interface permit a session. It consults them only if they have changed.
func (s *session) permitted(a *accessLists) bool {
	if s.generation != a.generation {
		s.generation = a.generation
		s.flags &^= denied
		if p := s.packet(); !a.permitsFlow(s.direction(), &p) {
			s.flags |= denied
		}
	}
	return s.flags&denied == 0
}

// moment is when a packet opens a session: the generation of the lists that permitted it, and the time in seconds.
type moment struct{ generation, now uint32 }

// open opens the session of a packet. It returns false if there is no room, and whether another session was replaced.
func (t *sessionTable) open(p *aclPacket, d direction, at moment) (opened, replaced bool) {
	k := p.key()
	if !k.valid {
		return false, false
	}
	opened, replaced = t.insert(k, newFlags(d, k.fromB), at, &p.upper)
	if opened && p.upper.first {
		t.openFragments(p, d, true, at)
	}
	return opened, replaced
}

// openFragments opens the session of the later fragments of a packet, or refreshes it. Without room the fragments
// depend on the lists.
func (t *sessionTable) openFragments(p *aclPacket, d direction, fromOpener bool, at moment) {
	later := aclPacket{
		flowWords: p.flowWords,
		family:    p.family,
		upper:     upperLayer{protocol: p.upper.protocol, later: true},
	}
	k := later.key()
	t.insert(k, newFlags(d, k.fromB == fromOpener), at, &later.upper)
}

func newFlags(d direction, byB bool) sessionFlags {
	f := inUse
	if d == outward {
		f |= openedOut
	}
	if byB {
		f |= openedByB
	}
	return f
}

// insert adds a session after a packet of its opener, or refreshes it.
func (t *sessionTable) insert(k *packetKey, flags sessionFlags, at moment, u *upperLayer) (opened, replaced bool) {
	s := t.shard(k.hash)
	defer t.unlock(s)
	n := s.find(k.hash, &k.sessionKey)
	if n == 0 {
		if n, replaced = s.allocate(openerOf(&k.sessionKey, flags), at.now); n == 0 {
			return false, false
		}
		b := &s.buckets[k.hash&uint64(len(s.buckets)-1)]
		s.sessions[n-1] = session{sessionKey: k.sessionKey, flags: flags, next: *b}
		*b = n
		s.live++
		if !s.sessions[n-1].settled() {
			s.append(n)
		}
	}
	s.sessions[n-1].generation = at.generation
	s.update(n, u, true, at.now)
	return true, replaced
}

// find returns the number of a session, or 0.
func (s *sessionShard) find(h uint64, k *sessionKey) uint16 {
	n := s.buckets[h&uint64(len(s.buckets)-1)]
	for n != 0 && !s.sessions[n-1].equals(k) {
		n = s.sessions[n-1].next
	}
	return n
}

// remove frees a session.
func (s *sessionShard) remove(h uint64, n uint16) {
	at := &s.buckets[h&uint64(len(s.buckets)-1)]
	for *at != n {
		at = &s.sessions[*at-1].next
	}
	*at = s.sessions[n-1].next
	if !s.sessions[n-1].settled() {
		s.unlink(n)
	}
	s.sessions[n-1] = session{next: s.free}
	s.free = n
	s.live--
}

// update notes a packet of a session.
func (s *sessionShard) update(n uint16, u *upperLayer, fromOpener bool, now uint32) {
	e := &s.sessions[n-1]
	was := e.settled()
	seen := e.seen
	e.update(u, fromOpener, now)
	is := e.settled()
	if was == is && (is || seen == now) {
		return // the list is in the order of seconds
	}
	if !was {
		s.unlink(n)
	}
	if !is {
		s.append(n)
	}
}

// touch notes only that a packet of a session arrived.
func (s *sessionShard) touch(n uint16, now uint32) {
	e := &s.sessions[n-1]
	if e.seen == now {
		return
	}
	e.seen = now
	if !e.settled() {
		s.unlink(n)
		s.append(n)
	}
}

// append adds a session to the list of those that are not settled.
func (s *sessionShard) append(n uint16) {
	e := &s.sessions[n-1]
	e.older = s.newest
	e.newer = 0
	if s.newest != 0 {
		s.sessions[s.newest-1].newer = n
	} else {
		s.oldest = n
	}
	s.newest = n
}

func (s *sessionShard) unlink(n uint16) {
	e := &s.sessions[n-1]
	if e.older != 0 {
		s.sessions[e.older-1].newer = e.newer
	} else {
		s.oldest = e.newer
	}
	if e.newer != 0 {
		s.sessions[e.newer-1].older = e.older
	} else {
		s.newest = e.older
	}
}

// addrWords returns an address as words; an IPv4 address is in the low word.
func addrWords(a netip.Addr) (high, low uint64) {
	p := compilePrefix(netaddr.Single(a))
	return p.high, p.low
}

func wordsAddr(family uint8, high, low uint64) netip.Addr {
	var raw [16]byte
	binary.BigEndian.PutUint64(raw[:], high)
	binary.BigEndian.PutUint64(raw[8:], low)
	if family == acl4 {
		return netip.AddrFrom4([4]byte(raw[12:]))
	}
	return netip.AddrFrom16(raw)
}
