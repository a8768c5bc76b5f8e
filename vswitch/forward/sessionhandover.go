package forward

import (
	"net/netip"
	"time"
)

// Session is a session of an interface that another process continues.
type Session struct {
	Opener, Peer         netip.Addr
	OpenerPort, PeerPort uint16
	Protocol             uint8
	Output               bool // the output ACLs permitted it
	State                uint8
	Idle                 time.Duration
}

// handedFlags are the flags of a session's state that another process continues.
const handedFlags = ackOpener | answered | finOpener | finAnswer | resetFlags

// settledSessions returns the settled sessions. Others begin again with the next packet of their opener.
func (t *sessionTable) settledSessions(now uint32) (all []Session) {
	for n := range t.shards {
		s := &t.shards[n]
		if t.shared {
			s.mu.Lock()
		}
		for i := range s.sessions[:s.used] {
			e := &s.sessions[i]
			if e.flags&inUse == 0 || !e.settled() || e.expired(now) {
				continue
			}
			p := e.packet()
			all = append(all, Session{
				Opener:     wordsAddr(p.family, p.sourceHigh, p.sourceLow),
				Peer:       wordsAddr(p.family, p.targetHigh, p.targetLow),
				OpenerPort: p.upper.source,
				PeerPort:   p.upper.target,
				Protocol:   e.protocol(),
				Output:     e.direction() == outward,
				State:      uint8(e.flags & handedFlags), Idle: time.Duration(e.idle(now)) * time.Second,
			})
		}
		t.unlock(s)
	}
	return all
}

// restore adds a session of another process; invalid ones are skipped. The current lists must permit its next packet.
func (t *sessionTable) restore(x Session, now uint32) {
	if !x.Opener.IsValid() || x.Opener.Is4() != x.Peer.Is4() || !x.Peer.IsValid() {
		return
	}
	p := aclPacket{
		upper: upperLayer{
			protocol: x.Protocol,
			hasPorts: true,
			hasFlags: true,
			source:   x.OpenerPort,
			target:   x.PeerPort,
		},
	}
	if x.Opener.Is6() {
		p.family = acl6
	}
	p.sourceHigh, p.sourceLow = addrWords(x.Opener)
	p.targetHigh, p.targetLow = addrWords(x.Peer)
	k := p.key()
	if !k.valid {
		return
	}
	d := inward
	if x.Output {
		d = outward
	}
	idle := uint32(min(max(x.Idle/time.Second, 0), tcpTimeout))
	t.insert(k, newFlags(d, k.fromB)|sessionFlags(x.State)&handedFlags, moment{now: now - idle}, &upperLayer{})
}

// sessions are the sessions of all interfaces, which another process continues.
type sessions struct{ *draft }

// Sessions returns the sessions of a published interface that another process continues. Any goroutine may call it.
func (ss *sessions) Sessions(index uint32) (all []Session) {
	i := ss.live.Load().iface(index)
	if i == nil || i.acl == nil || i.acl.sessions == nil {
		return nil
	}
	list := func(*worker) { all = i.acl.sessions.settledSessions(ss.sessionSeconds()) }
	if !ss.workers[0].requests.post(list) {
		list(nil) // the workers have ended
	}
	return all
}

// RestoreSessions adds the sessions of another process to an interface, before Run.
func (ss *sessions) RestoreSessions(index uint32, all []Session) {
	i := ss.edit().iface(index)
	if i == nil || i.acl == nil || i.acl.sessions == nil {
		return
	}
	for _, s := range all {
		i.acl.sessions.restore(s, ss.sessionSeconds())
	}
}

func (ss *sessions) sessionSeconds() uint32 { return uint32(time.Since(ss.start) / time.Second) }
