// Package forward forwards frames between ports: workers run to completion on snapshots that a control goroutine
// publishes.
package forward

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/port"
	"github.com/weftnet/weft/vswitch/slow"
)

// Config configures an Engine.
type Config struct {
	Workers int          // 0: one
	Log     *slog.Logger // receives port failures and recoveries; nil: no log

	MemifBroker *memif.Broker // owns the sockets of memif clients; nil: this process owns them
	// StormLimit is the number of copies per second that a worker makes of flooded frames of one interface; 0:
	// DefaultStormLimit, negative: no limit.
	StormLimit int
	// SessionLimit is the number of sessions that ACLs open on one interface; 0: DefaultSessionLimit. There may be an
	// eighth more.
	SessionLimit int
	// HandOver is called at the end of Run, after the last vector. It returns true if another process has adopted the
	// ports, which open returns; then they are not deleted. nil: all are deleted.
	HandOver func(open func() OpenPorts) bool
}

// Engine forwards packets. Control is the one goroutine that calls ClosePort and the methods that begin with Set, Add,
// Del, Publish, Flush, Forget, Learned and Open. Counters, Drops, Trace and Events may be called by any goroutine.
// Publish makes all changes visible to the workers at once; ports are opened and closed immediately.
type Engine struct {
	published
	draft
	links
	routing
	switching
	sessions
	traces
	hostPorts

	slow       *slow.Path
	slowBell   *slow.Bell
	events     chan Event
	stopped    chan struct{}
	lostEvents atomic.Uint64
}

// New creates an engine with table 0 of both families. Run starts forwarding and frees the engine at its end.
func New(c Config) (*Engine, error) {
	if c.Workers < 0 {
		return nil, fmt.Errorf("%d workers", c.Workers)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	e := &Engine{
		published: published{start: time.Now()},
		events:    make(chan Event, eventBacklog),
		stopped:   make(chan struct{}),
	}
	e.draft = draft{published: &e.published}
	e.links = links{draft: &e.draft, sessionLimit: sessionLimit(c.SessionLimit)}
	e.routing = routing{draft: &e.draft}
	e.switching = switching{draft: &e.draft, bridgeSlots: map[uint32]uint16{}}
	e.sessions = sessions{draft: &e.draft}
	e.traces = traces{published: &e.published}
	e.hostPorts = hostPorts{published: &e.published, handOver: c.HandOver}
	e.live.Store(newSnapshot())
	e.ports.Store(new(portTable))
	if err := e.build(c); err != nil {
		e.free()
		return nil, fmt.Errorf("create forwarding engine: %w", err)
	}
	return e, nil
}

func (e *Engine) build(c Config) (err error) {
	if e.slowBell, err = slow.NewBell(); err != nil {
		return err
	}
	if e.supervisor, err = newSupervisor(e, c.Log); err != nil {
		return err
	}
	e.memifs = newMemifs(e, c.Log, c.MemifBroker)
	var rings []*slow.Ring[slow.Message]
	for id := range max(c.Workers, 1) {
		w, err := newWorker(e, id)
		if err != nil {
			return err
		}
		w.l2.storm.limit = stormLimit(c.StormLimit)
		e.workers = append(e.workers, w)
		rings = append(rings, w.slow.toSlow)
	}
	connect(e.workers)
	e.slow = slow.New(slowBackend{e}, e.slowBell, rings)
	return nil
}

// Run forwards until ctx ends, then closes all ports, or leaves them to Config.HandOver. It may be called once.
func (e *Engine) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, w := range e.workers {
		g.Go(func() error { return w.run(ctx) })
	}
	g.Go(func() error { return e.slow.Run(ctx) })
	g.Go(func() error { return e.supervisor.run(ctx) })
	err := g.Wait()
	close(e.stopped)
	err = errors.Join(err, e.closePorts())
	e.free()
	return err
}

// free releases the resources that New allocated.
func (e *Engine) free() {
	for _, w := range e.workers {
		w.close()
	}
	if e.slowBell != nil {
		_ = e.slowBell.Close()
	}
	if e.supervisor != nil {
		_ = e.supervisor.bell.Close()
	}
}

// EventKind is the kind of an Event.
type EventKind uint8

// The kinds of events.
const (
	PortDown         EventKind = iota + 1 // the port failed and is closed; the engine opens it again
	PortUp                                // the port works again; not sent for the first open
	PeerConnected                         // a client connected to a memif
	PeerGone                              // the client of a memif disconnected
	NeighbourLearned                      // the slow path resolved Addr; control calls SetNeighbour and Publish
)

// Event is a change in the dataplane that control did not cause.
type Event struct {
	Kind      EventKind
	Interface uint32
	Addr      netip.Addr      // NeighbourLearned
	MAC       frame.MAC       // NeighbourLearned
	Err       error           // cause of PortDown and PeerGone
	Peer      *port.MemifPeer // PeerConnected
}

// eventBacklog limits unread events. A lost NeighbourLearned is repeated when the neighbour is needed again.
const eventBacklog = 1024

// Events returns the channel of events. It is never closed.
func (e *Engine) Events() <-chan Event { return e.events }

// report sends an event, or counts it as lost if the backlog is full. It never blocks.
func (e *Engine) report(ev Event) bool {
	select {
	case e.events <- ev:
		return true
	default:
		e.lostEvents.Add(1)
		return false
	}
}
