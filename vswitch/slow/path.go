// Package slow handles the packets that workers punt: ARP, neighbour discovery, neighbour resolution, ICMP echo and
// errors.
package slow

import (
	"context"
	"net/netip"
	"time"

	"github.com/weftnet/weft/vswitch/frame"
)

// Interface holds the properties of an interface that the slow path needs.
type Interface struct {
	MAC       frame.MAC
	Addresses []netip.Addr // its own, or from its unnumbered donor
	LinkLocal netip.Addr
	Up        bool
	Proxied   Proxied
}

// router is the dataplane around the slow path. None of its methods blocks.
type router interface {
	Interface(index uint32) (Interface, bool)
	Neighbour(index uint32, a netip.Addr) (mac frame.MAC, static, ok bool)
	Learned(index uint32, a netip.Addr, m frame.MAC) bool // false: not recorded, call again
	Inject() *Message                                     // a free message to the worker; nil if the ring is full
	Injected()                                            // sends the message of Inject
}

// Path is the slow path. One goroutine owns it; only Drops may be called from others.
type Path struct {
	link
	bell      *Bell
	rings     []*Ring[Message]
	responder responder
	resolver  *resolver
	icmp      *icmpResponder
	fragments reassembler
}

// burst is the number of messages that are handled of one ring before the next ring.
const burst = 32

// New creates a slow path that reads rings. Writers wake it with bell.
func New(r router, bell *Bell, rings []*Ring[Message]) *Path {
	l := link{router: r, causeCounts: new(causeCounts)}
	icmp := &icmpResponder{link: l, errors: errorLimit{}}
	resolver := newResolver(l, icmp)
	return &Path{
		link:      l,
		bell:      bell,
		rings:     rings,
		responder: responder{link: l, resolver: resolver},
		resolver:  resolver,
		icmp:      icmp,
		fragments: reassembler{senders: map[uint32][]*reassembly{}},
	}
}

// Run handles messages until ctx ends.
func (p *Path) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, p.bell.Ring)
	defer stop()
	for ctx.Err() == nil {
		due := p.Step(time.Now())
		if err := p.bell.Wait(due, func() bool { return p.idle() && ctx.Err() == nil }); err != nil {
			return err
		}
	}
	return nil
}

// Step handles one burst of each ring, and the resolutions and reassemblies that are due at now. It returns the time
// when the next one is due, or the zero time. Run is a loop around Step.
func (p *Path) Step(now time.Time) time.Time {
	for _, r := range p.rings {
		for range burst {
			m := r.Peek()
			if m == nil {
				break
			}
			p.handle(m, now)
			r.Advance()
		}
	}
	p.causeCounts[fragmentsMissing].Add(p.fragments.expire(now))
	return earlier(p.resolver.tick(now), p.fragments.due)
}

func (p *Path) idle() bool {
	for _, r := range p.rings {
		if !r.Empty() {
			return false
		}
	}
	return true
}

// handle handles one message. The caller passes the time, so tests control the clock.
func (p *Path) handle(m *Message, now time.Time) {
	switch m.Reason {
	case ARP:
		p.responder.arp(m, now)
	case Discovery:
		p.responder.discovery(m, now)
	case Received:
		p.received(m, now)
	case Unresolved:
		p.resolver.resolve(m, now)
	default:
		p.icmp.refuse(m, now)
	}
}
