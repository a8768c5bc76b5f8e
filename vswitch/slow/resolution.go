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

// resolver resolves the MACs of neighbours. Frames to a neighbour wait for its MAC.
type resolver struct {
	link
	icmp       *icmpResponder
	neighbours map[neighbourKey]*resolution
	due        time.Time      // when the next resolution is due; zero: no resolution
	senders    map[uint32]int // resolutions by sender
}

func newResolver(l link, icmp *icmpResponder) *resolver {
	return &resolver{
		link:       l,
		icmp:       icmp,
		neighbours: map[neighbourKey]*resolution{},
		senders:    map[uint32]int{},
	}
}

// resolve queues a frame until its neighbour is known, and sends requests for the neighbour.
func (rs *resolver) resolve(m *Message, now time.Time) {
	key := neighbourKey{m.Out, m.Target}
	if mac, _, ok := rs.router.Neighbour(m.Out, m.Target); ok {
		rs.forward(m.Out, mac, waiting{m.Interface, m.Sender, m.Virtio, m.Bytes()}, m.Whole)
		return
	}
	r := rs.neighbours[key]
	if r == nil {
		if len(rs.neighbours) >= maxResolutions {
			rs.drop(tableFull)
			if !rs.makeRoom(m.Sender) {
				return
			}
		}
		r = &resolution{sender: m.Sender}
		rs.neighbours[key] = r
		rs.senders[m.Sender]++
		rs.keep(r, m)
		rs.ask(key, r, now)
		return
	}
	if !r.mac.IsZero() {
		rs.router.Learned(m.Out, m.Target, r.mac)
		rs.forward(m.Out, r.mac, waiting{m.Interface, m.Sender, m.Virtio, m.Bytes()}, m.Whole)
		return
	}
	rs.keep(r, m)
}

// makeRoom removes a resolution of the sender with most of them, unless that is this one. So a pod that scans addresses
// does not prevent others from resolving theirs.
func (rs *resolver) makeRoom(sender uint32) bool {
	most := sender
	for s, n := range rs.senders {
		if n > rs.senders[most] {
			most = s
		}
	}
	if rs.senders[most] <= rs.senders[sender]+1 {
		return false
	}
	for key, r := range rs.neighbours {
		if r.sender == most {
			rs.remove(key, r)
			return true
		}
	}
	return false
}

func (rs *resolver) remove(key neighbourKey, r *resolution) {
	delete(rs.neighbours, key)
	rs.senders[r.sender]--
	if rs.senders[r.sender] == 0 {
		delete(rs.senders, r.sender)
	}
}

func (rs *resolver) keep(r *resolution, m *Message) {
	switch {
	case !m.Whole:
		rs.drop(truncated)
	case len(r.waiting) >= queueDepth:
		rs.drop(queueFull)
	default:
		r.waiting = append(r.waiting, waiting{m.Interface, m.Sender, m.Virtio, append([]byte(nil), m.Bytes()...)})
	}
}

func (rs *resolver) ask(key neighbourKey, r *resolution, now time.Time) {
	r.asked++
	r.due = now.Add(askEvery)
	rs.expect(r.due)
	i, ok := rs.router.Interface(key.index)
	if !ok || !i.Up {
		return
	}
	if key.addr.Is4() {
		rs.requestARP(key.index, i, key.addr)
		return
	}
	rs.solicit(key.index, i, key.addr)
}

// claim handles the MAC that a neighbour announced: it completes a resolution or updates a learned neighbour. It adds
// no entry for unknown neighbours and never changes a static entry.
func (rs *resolver) claim(c claim, now time.Time) {
	mac, static, known := rs.router.Neighbour(c.index, c.addr)
	if known && static {
		if mac != c.mac {
			rs.drop(staticClaim)
		}
		return
	}
	r := rs.neighbours[neighbourKey{c.index, c.addr}]
	if r == nil {
		if known && mac != c.mac && c.override {
			rs.router.Learned(c.index, c.addr, c.mac)
		}
		return
	}
	if !r.mac.IsZero() && (!c.override || r.mac == c.mac) {
		return
	}
	r.mac = c.mac
	r.due = now.Add(learnedFor)
	rs.expect(r.due)
	rs.router.Learned(c.index, c.addr, c.mac)
	for _, w := range r.waiting {
		rs.forward(c.index, c.mac, w, true)
	}
	r.waiting = nil
}

func (rs *resolver) forward(out uint32, mac frame.MAC, w waiting, whole bool) {
	if !whole {
		rs.drop(truncated)
		return
	}
	i, ok := rs.router.Interface(out)
	m := rs.router.Inject()
	if m == nil || !ok {
		rs.drop(workerFull)
		return
	}
	m.Fill(w.frame)
	frame.Ethernet(m.Bytes()).Rewrite(mac, i.MAC)
	m.Reason = Output
	m.Out = out
	m.Virtio = w.virtio
	rs.router.Injected()
}

// tick repeats the requests that are due and gives up after askTimes. It returns when the next resolution is due.
func (rs *resolver) tick(now time.Time) time.Time {
	if now.Before(rs.due) {
		return rs.due
	}
	rs.due = time.Time{}
	for key, r := range rs.neighbours {
		switch {
		case now.Before(r.due):
		case !r.mac.IsZero():
			rs.remove(key, r)
			continue
		case r.asked >= askTimes:
			rs.remove(key, r)
			rs.giveUp(r, now)
			continue
		default:
			rs.ask(key, r, now)
		}
		rs.expect(r.due)
	}
	return rs.due
}

// expect makes tick check the resolutions no later than at due.
func (rs *resolver) expect(due time.Time) {
	if rs.due.IsZero() || due.Before(rs.due) {
		rs.due = due
	}
}

func (rs *resolver) giveUp(r *resolution, now time.Time) {
	rs.drop(unanswered)
	for _, w := range r.waiting {
		m := Message{Reason: HostUnreached, Interface: w.received, Sender: w.sender, Virtio: w.virtio}
		m.Fill(w.frame)
		rs.icmp.refuse(&m, now)
	}
}
