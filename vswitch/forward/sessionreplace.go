package forward

import "github.com/weftnet/weft/vswitch/frame"

// allocate returns the number of a free session, or 0 if there is none. It prefers expired sessions to unused memory, and replaces
// another session if the shard is full.
func (s *sessionShard) allocate(now uint32) (n uint16, replaced bool) {
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
			victim = s.dominant(now)
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

// sweep examines sessions and frees those that have expired. It returns the settled one of the others that has been idle
// longest, at least for pressedTimeout, or 0.
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
			victim, longest = n, e.idle(now)
		}
	}
	return victim
}

// dominant returns the UDP session that has been idle longest of those of one opener, if this opener has at least half of the examined
// sessions; otherwise 0. So one client that fills the table of a pod that answers it replaces its own sessions, and others find room. TCP
// connections are not replaced: each took a handshake.
func (s *sessionShard) dominant(now uint32) (victim uint16) {
	type address struct{ high, low uint64 }
	var openers [examined]address
	var numbers [examined]uint16
	found := 0
	for i := range min(examined, int(s.used)) {
		n := uint16((int(s.hand)+int(s.used)-1-i)%int(s.used)) + 1 // those that sweep examined last
		e := &s.sessions[n-1]
		if e.flags&inUse == 0 || e.protocol() != frame.ProtocolUDP {
			continue
		}
		openers[found], numbers[found] = address{e.aHigh, e.aLow}, n
		if e.flags&openedByB != 0 {
			openers[found] = address{e.bHigh, e.bLow}
		}
		found++
	}
	for i := range found {
		count, oldest := 0, numbers[i]
		for j := range found {
			if openers[j] != openers[i] {
				continue
			}
			count++
			if s.sessions[numbers[j]-1].idle(now) > s.sessions[oldest-1].idle(now) {
				oldest = numbers[j]
			}
		}
		if count >= examined/2 {
			return oldest
		}
	}
	return 0
}
