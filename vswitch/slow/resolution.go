package slow

import (
	"net/netip"
	"time"

	"github.com/weftnet/weft/vswitch/frame"
)

const (
	askEvery       = time.Second // RFC 1122 2.3.2.1: at most one request a second for each destination
	askTimes       = 3           // then the neighbour counts as unreachable (RFC 4861: MAX_MULTICAST_SOLICIT)
	queueDepth     = 8           // frames queued for one neighbour
	maxResolutions = 1024        // concurrent resolutions: a scanning pod cannot exhaust memory
	learnedFor     = 10 * time.Second
)

type neighbourKey struct {
	index uint32
	addr  netip.Addr
}

// resolution is the state of a neighbour that is being resolved.
//
//	asking --answer--> learned --learnedFor--> forgotten
//	   \--askTimes without answer--> forgotten, queued packets are refused
type resolution struct {
	sender  uint32 // of the first frame
	asked   int
	due     time.Time // asking: time of the next request; learned: time of removal
	waiting []waiting
	mac     frame.MAC // learned: used until the control plane has recorded it
}

type waiting struct {
	received uint32 // the interface that received the frame, for an ICMP error
	sender   uint32
	virtio   frame.Virtio
	frame    []byte
}

// claim is the MAC that a neighbour announced for an address.
type claim struct {
	index    uint32
	addr     netip.Addr
	mac      frame.MAC
	override bool
}

// resolve queues a frame until its neighbour is known, and sends requests for the neighbour.
func (p *Path) resolve(m *Message, now time.Time) {
	key := neighbourKey{m.Out, m.Target}
	if mac, _, ok := p.router.Neighbour(m.Out, m.Target); ok {
		p.forward(m.Out, mac, waiting{m.Interface, m.Sender, m.Virtio, m.Bytes()}, m.Whole)
		return
	}
	r := p.neighbours[key]
	if r == nil {
		if len(p.neighbours) >= maxResolutions {
			p.drop(tableFull)
			if !p.makeRoom(m.Sender) {
				return
			}
		}
		r = &resolution{sender: m.Sender}
		p.neighbours[key] = r
		p.senders[m.Sender]++
		p.keep(r, m)
		p.ask(key, r, now)
		return
	}
	if !r.mac.IsZero() {
		p.router.Learned(m.Out, m.Target, r.mac)
		p.forward(m.Out, r.mac, waiting{m.Interface, m.Sender, m.Virtio, m.Bytes()}, m.Whole)
		return
	}
	p.keep(r, m)
}

// makeRoom removes a resolution of the sender with most of them, unless that is this one. So a pod that scans addresses
// does not prevent others from resolving theirs.
func (p *Path) makeRoom(sender uint32) bool {
	most := sender
	for s, n := range p.senders {
		if n > p.senders[most] {
			most = s
		}
	}
	if p.senders[most] <= p.senders[sender]+1 {
		return false
	}
	for key, r := range p.neighbours {
		if r.sender == most {
			p.remove(key, r)
			return true
		}
	}
	return false
}

func (p *Path) remove(key neighbourKey, r *resolution) {
	delete(p.neighbours, key)
	p.senders[r.sender]--
	if p.senders[r.sender] == 0 {
		delete(p.senders, r.sender)
	}
}

func (p *Path) keep(r *resolution, m *Message) {
	switch {
	case !m.Whole:
		p.drop(truncated)
	case len(r.waiting) >= queueDepth:
		p.drop(queueFull)
	default:
		r.waiting = append(r.waiting, waiting{m.Interface, m.Sender, m.Virtio, append([]byte(nil), m.Bytes()...)})
	}
}

func (p *Path) ask(key neighbourKey, r *resolution, now time.Time) {
	r.asked++
	r.due = now.Add(askEvery)
	p.expect(r.due)
	i, ok := p.router.Interface(key.index)
	if !ok || !i.Up {
		return
	}
	if key.addr.Is4() {
		p.requestARP(key.index, i, key.addr)
		return
	}
	p.solicit(key.index, i, key.addr)
}

// claim handles the MAC that a neighbour announced: it completes a resolution or updates a learned neighbour. It adds
// no entry for unknown neighbours and never changes a static entry.
func (p *Path) claim(c claim, now time.Time) {
	mac, static, known := p.router.Neighbour(c.index, c.addr)
	if known && static {
		if mac != c.mac {
			p.drop(staticClaim)
		}
		return
	}
	r := p.neighbours[neighbourKey{c.index, c.addr}]
	if r == nil {
		if known && mac != c.mac && c.override {
			p.router.Learned(c.index, c.addr, c.mac)
		}
		return
	}
	if !r.mac.IsZero() && (!c.override || r.mac == c.mac) {
		return
	}
	r.mac = c.mac
	r.due = now.Add(learnedFor)
	p.expect(r.due)
	p.router.Learned(c.index, c.addr, c.mac)
	for _, w := range r.waiting {
		p.forward(c.index, c.mac, w, true)
	}
	r.waiting = nil
}

func (p *Path) forward(out uint32, mac frame.MAC, w waiting, whole bool) {
	if !whole {
		p.drop(truncated)
		return
	}
	i, ok := p.router.Interface(out)
	m := p.router.Inject()
	if m == nil || !ok {
		p.drop(workerFull)
		return
	}
	m.Fill(w.frame)
	frame.Ethernet(m.Bytes()).Rewrite(mac, i.MAC)
	m.Reason = Output
	m.Out = out
	m.Virtio = w.virtio
	p.router.Injected()
}

// tick repeats the requests that are due and gives up after askTimes. It returns when the next resolution is due.
func (p *Path) tick(now time.Time) time.Time {
	if now.Before(p.due) {
		return p.due
	}
	p.due = time.Time{}
	for key, r := range p.neighbours {
		switch {
		case now.Before(r.due):
		case !r.mac.IsZero():
			p.remove(key, r)
			continue
		case r.asked >= askTimes:
			p.remove(key, r)
			p.giveUp(r, now)
			continue
		default:
			p.ask(key, r, now)
		}
		p.expect(r.due)
	}
	return p.due
}

// expect makes tick check the resolutions no later than at due.
func (p *Path) expect(due time.Time) {
	if p.due.IsZero() || due.Before(p.due) {
		p.due = due
	}
}

func (p *Path) giveUp(r *resolution, now time.Time) {
	p.drop(unanswered)
	for _, w := range r.waiting {
		m := Message{Reason: HostUnreached, Interface: w.received, Sender: w.sender, Virtio: w.virtio}
		m.Fill(w.frame)
		p.refuse(&m, now)
	}
}
