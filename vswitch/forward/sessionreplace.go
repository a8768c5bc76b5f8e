package forward

import "github.com/weftnet/weft/vswitch/frame"

// allocate returns the number of a free session, or 0 without one. It prefers expired sessions to unused memory,
// and replaces another session if the shard is full.
func (s *sessionShard) allocate(newcomer opener, now uint32) (n uint16, replaced bool) {
	s.sweep(swept, now)
	if s.free == 0 && int(s.used) < len(s.sessions) {
		s.used++
		return s.used, false
	}
	if s.free == 0 {
		victim := s.oldest
		if victim == 0 {
			victim = s.sweep(examined, now)
		}
		if victim == 0 && s.free == 0 {
			victim = s.dominant(newcomer, now)
		}
		if s.free == 0 && victim != 0 {
			replaced = !s.sessions[victim-1].expired(now)
			s.remove(s.sessions[victim-1].hash(), victim)
		}
	}
	if n = s.free; n != 0 {
		s.free = s.sessions[n-1].next
	}
	return n, replaced
}

// sweep examines sessions and frees those that have expired. It returns the settled one of the others that has been
// idle longest, at least for pressedTimeout, or 0.
func (s *sessionShard) sweep(count int, now uint32) (victim uint16) {
	longest := uint32(pressedTimeout)
	for range min(count, int(s.used)) {
		if s.hand >= s.used {
			s.hand = 0
		}
		s.hand++
		n := s.hand
		e := &s.sessions[n-1]
		switch {
		case e.flags&inUse == 0:
		case e.expired(now):
			s.remove(e.hash(), n)
		case e.settled() && e.idle(now) >= longest:
			victim = n
			longest = e.idle(now)
		}
	}
	return victim
}

// opener is the address of the end that opened a session.
type opener struct{ high, low uint64 }

// openerOf returns the opener of a session with a key and flags.
func openerOf(k *sessionKey, flags sessionFlags) opener {
	if flags&openedByB != 0 {
		return opener{k.bHigh, k.bLow}
	}
	return opener{k.aHigh, k.aLow}
}

// sample are sessions of a shard with their openers.
type sample struct {
	numbers [examined]uint16
	openers [examined]opener
	found   int
}

// examinedLast returns the sessions that sweep examined last.
func (s *sessionShard) examinedLast() (last sample) {
	for i := range min(examined, int(s.used)) {
		n := uint16((int(s.hand)+int(s.used)-1-i)%int(s.used)) + 1
		e := &s.sessions[n-1]
		if e.flags&inUse == 0 {
			continue
		}
		last.numbers[last.found] = n
		last.openers[last.found] = openerOf(&e.sessionKey, e.flags)
		last.found++
	}
	return last
}

// Shares of the examined sessions from which on an opener's sessions are replaced for others: a quarter for those that
// cost it one packet and an answer, and half for TCP connections, each of which took a handshake. Without an opener
// with such a share a new session is refused.
const (
	datagramShare   = examined / 4
	connectionShare = examined / 2
)

// dominant returns the session that has been idle longest of the opener with most of the examined sessions, if they are
// a large share; otherwise 0. So a client that fills the table of a pod that answers it loses its own sessions, and
// others find room. TCP connections are replaced for other openers only, and only those that were opened to the pod: a
// client cannot end those that the pod opened.
func (s *sessionShard) dominant(newcomer opener, now uint32) (victim uint16) {
	last := s.examinedLast()
	most := datagramShare - 1
	for i := range last.found {
		count := last.countOf(last.openers[i])
		if count <= most {
			continue
		}
		mayEndTCP := count >= connectionShare && last.openers[i] != newcomer
		if n := s.idlest(&last, last.openers[i], mayEndTCP, now); n != 0 {
			victim = n
			most = count
		}
	}
	return victim
}

func (l *sample) countOf(o opener) (count int) {
	for i := range l.found {
		if l.openers[i] == o {
			count++
		}
	}
	return count
}

// idlest returns the session of an opener that has been idle longest and may be replaced, or 0.
func (s *sessionShard) idlest(l *sample, o opener, mayEndTCP bool, now uint32) (victim uint16) {
	for i := range l.found {
		n := l.numbers[i]
		e := &s.sessions[n-1]
		isEndable := e.protocol() != frame.ProtocolTCP || mayEndTCP && e.direction() == outward
		if l.openers[i] != o || !isEndable {
			continue
		}
		if victim == 0 || e.idle(now) > s.sessions[victim-1].idle(now) {
			victim = n
		}
	}
	return victim
}
