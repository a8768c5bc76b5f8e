package slow

import (
	"context"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/weftnet/weft/vswitch/frame"
)

// Interface is what the slow path must know of one.
type Interface struct {
	MAC       frame.MAC
	Addresses []netip.Addr // its own, or its donor's
	LinkLocal netip.Addr
	MTU       int
	Up        bool
	Proxied   Proxied
}

// router is the dataplane around the slow path. None of its methods blocks.
type router interface {
	Interface(index uint32) (Interface, bool)
	Neighbour(index uint32, a netip.Addr) (mac frame.MAC, static, ok bool)
	Learned(index uint32, a netip.Addr, m frame.MAC) bool // false: not heard, to be said again
	Inject() *Message                                     // room for a message to the worker; nil when it is full
	Injected()                                            // what Inject returned is ready
}

// Path is the slow path: one goroutine, which alone touches it, but for Drops.
type Path struct {
	router     router
	bell       *Bell
	rings      []*Ring
	neighbours map[neighbourKey]*resolution
	due        time.Time // of the next resolution; zero: none
	errors     bucket
	drops      [causes]atomic.Uint64
}

// burst is how many messages of one ring are handled before the others get their turn.
const burst = 32

// New makes a slow path that reads rings and is woken by bell.
func New(r router, bell *Bell, rings []*Ring) *Path {
	return &Path{
		router: r, bell: bell, rings: rings,
		neighbours: map[neighbourKey]*resolution{},
		errors:     bucket{rate: errorRate, depth: errorBurst, tokens: errorBurst},
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

// Step handles what waits, one burst of each ring, and what is due at now. It returns when the next thing is due; the zero
// time: nothing is. Run is a loop around it.
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
	return p.tick(now)
}

func (p *Path) idle() bool {
	for _, r := range p.rings {
		if !r.Empty() {
			return false
		}
	}
	return true
}

// handle does one message; it has the clock from its caller, so that tests own time.
func (p *Path) handle(m *Message, now time.Time) {
	switch m.Reason {
	case ARP:
		p.arp(m, now)
	case Discovery:
		p.discovery(m, now)
	case Received:
		p.received(m, now)
	case Unresolved:
		p.resolve(m, now)
	default:
		p.refuse(m, now)
	}
}
