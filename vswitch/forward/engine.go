// Package forward moves frames between ports: workers that run to completion over snapshots made by one control goroutine.
package forward

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/port"
	"github.com/weftnet/weft/vswitch/slow"
)

// Advice for the process around an Engine (debug.SetGCPercent, debug.SetMemoryLimit). The live heap is the buffers, which
// hold no pointers; forwarding makes no garbage, control little. So collections are rare at the ordinary percentage, and
// the limit only stops a burst of control work from doubling the buffers' share. The numbers are reasoned, not measured.
const (
	AdvisedGCPercent   = 100
	AdvisedMemoryLimit = 256 << 20
)

// Config says how an Engine is made.
type Config struct {
	Workers int          // 0: one
	Log     *slog.Logger // of ports that fail and come back; nil: none

	MemifBroker *memif.Broker // holds the sockets of memif clients; nil: this process does
	// StormLimit is how many copies a second a worker makes of frames of one interface that bridge domains flood; 0:
	// DefaultStormLimit, below 0: no limit.
	StormLimit int
}

// Engine forwards packets. Its Set, Add, Del, Publish, Flush, Forget and Learned methods, the Opens and ClosePort belong to one
// goroutine, called control here; Counters, Drops, Trace and Events may be used by any. Changes are seen by the workers at
// Publish, all at once; ports come and go at once.
type Engine struct {
	workers  []*worker
	slow     *slow.Path
	slowBell *slow.Bell
	keeper   *keeper
	memifs   *memifs
	live     atomic.Pointer[snapshot]
	ports    atomic.Pointer[portTable]
	draft    *snapshot // control's; nil: nothing has changed since Publish
	events   chan Event
	stopped  chan struct{}

	bridgeSlots map[uint32]uint16 // control's, by bridge domain
	lostEvents  atomic.Uint64
}

// New makes an engine that has table 0 of both families and nothing else. Run makes it forward, and frees it at its end.
func New(c Config) (*Engine, error) {
	if c.Workers < 0 {
		return nil, fmt.Errorf("%d workers", c.Workers)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	e := &Engine{events: make(chan Event, eventBacklog), stopped: make(chan struct{}), bridgeSlots: map[uint32]uint16{}}
	e.live.Store(newSnapshot())
	e.ports.Store(new(portTable))
	if err := e.build(c); err != nil {
		e.free()
		return nil, fmt.Errorf("make forwarding engine: %w", err)
	}
	return e, nil
}

func (e *Engine) build(c Config) (err error) {
	if e.slowBell, err = slow.NewBell(); err != nil {
		return err
	}
	if e.keeper, err = newKeeper(e, c.Log); err != nil {
		return err
	}
	e.memifs = newMemifs(e, c.Log, c.MemifBroker)
	var rings []*slow.Ring
	for id := range max(c.Workers, 1) {
		w, err := newWorker(e, id)
		if err != nil {
			return err
		}
		w.stormLimit = stormLimit(c.StormLimit)
		e.workers = append(e.workers, w)
		rings = append(rings, w.punts)
	}
	connect(e.workers)
	e.slow = slow.New(surroundings{e}, e.slowBell, rings)
	return nil
}

// Run forwards until ctx ends; then it closes all ports. Once only. ClosePort and Trace wait for it.
func (e *Engine) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, w := range e.workers {
		g.Go(func() error { return w.run(ctx) })
	}
	g.Go(func() error { return e.slow.Run(ctx) })
	g.Go(func() error { return e.keeper.run(ctx) })
	err := g.Wait()
	close(e.stopped)
	err = errors.Join(err, e.memifs.closeAll(), e.keeper.closeAll())
	e.free()
	return err
}

// free gives back what New took.
func (e *Engine) free() {
	for _, w := range e.workers {
		w.close()
	}
	if e.slowBell != nil {
		_ = e.slowBell.Close()
	}
	if e.keeper != nil {
		_ = e.keeper.bell.Close()
	}
}

// Publish shows control's changes to the workers: one pointer is stored, whatever has changed.
func (e *Engine) Publish() {
	if e.draft != nil {
		e.live.Store(e.draft)
		e.draft = nil
	}
}

// edit returns control's draft of the next snapshot, begun from the live one.
func (e *Engine) edit() *snapshot {
	if e.draft == nil {
		e.draft = e.live.Load().clone()
	}
	return e.draft
}

// surroundings are the engine as the slow path sees it. Its own frames go out through the first worker.
type surroundings struct{ e *Engine }

// Interface answers from what is published.
func (s surroundings) Interface(index uint32) (slow.Interface, bool) {
	i := s.e.live.Load().iface(index)
	if i == nil {
		return slow.Interface{}, false
	}
	return slow.Interface{MAC: i.mac, Addresses: i.addresses, LinkLocal: i.linkLocal, Up: i.up, Proxied: s.e.live.Load().proxied(i)}, true
}

// Neighbour answers from what is published.
func (s surroundings) Neighbour(index uint32, a netip.Addr) (frame.MAC, bool, bool) {
	i := s.e.live.Load().iface(index)
	if i == nil {
		return frame.MAC{}, false, false
	}
	n, ok := i.neighbour(a)
	if !ok {
		return frame.MAC{}, false, false
	}
	return n.mac, n.static, true
}

// Learned tells control.
func (s surroundings) Learned(index uint32, a netip.Addr, m frame.MAC) bool {
	return s.e.report(Event{Kind: NeighbourLearned, Interface: index, Addr: a, MAC: m})
}

// Inject gives room for a frame to the first worker.
func (s surroundings) Inject() *slow.Message { return s.e.workers[0].injects.Reserve() }

// Injected wakes it.
func (s surroundings) Injected() {
	s.e.workers[0].injects.Commit()
	s.e.workers[0].bell.Ring()
}

// letter asks a worker to do something between two vectors.
type letter struct {
	do   func(*worker)
	done chan struct{}
	next *letter
}

// post hands a letter to the worker and waits until it is done; false: the worker has ended, or the engine was stopped
// before it ran. The others of the engine may still be at work then, so the engine's own end is not what counts.
func (w *worker) post(do func(*worker)) bool {
	l := &letter{do: do, done: make(chan struct{})}
	for {
		l.next = w.mail.Load()
		if w.mail.CompareAndSwap(l.next, l) {
			break
		}
	}
	w.bell.Ring()
	select {
	case <-l.done:
		return true
	case <-w.ended:
		return false
	case <-w.engine.stopped:
		return false
	}
}

// readMail does all letters; their order is of no matter, as everybody waits for his own. What was changed before one was
// written is seen before it is done: who is answered may close a port.
func (w *worker) readMail() {
	if w.mail.Load() == nil {
		return
	}
	l := w.mail.Swap(nil)
	w.refresh()
	for ; l != nil; l = l.next {
		l.do(w)
		close(l.done)
	}
}

// settle returns when no worker uses what was taken away before, and all see what was added.
func (e *Engine) settle() {
	for _, w := range e.workers {
		w.post(func(*worker) {})
	}
}

// EventKind says what happened.
type EventKind uint8

// What control hears of.
const (
	PortDown         EventKind = iota + 1 // the port erred and is closed; it is being opened again
	PortUp                                // the port works again; OpenTap's own success is no event
	PeerConnected                         // a memif's client is there
	PeerGone                              // a memif has lost its client
	NeighbourLearned                      // the slow path resolved Addr; control answers with SetNeighbour and Publish
)

// Event is something that happened in the dataplane by itself.
type Event struct {
	Kind      EventKind
	Interface uint32
	Addr      netip.Addr      // NeighbourLearned
	MAC       frame.MAC       // NeighbourLearned
	Err       error           // PortDown, PeerGone: why
	Peer      *port.MemifPeer // PeerConnected
}

// eventBacklog bounds the events that control has not read; a neighbour report that is lost is made again when it is needed.
const eventBacklog = 1024

// Events is where control hears. It is never closed: the reader stops with its context.
func (e *Engine) Events() <-chan Event { return e.events }

// report never blocks: an event that does not fit is lost and counted.
func (e *Engine) report(ev Event) bool {
	select {
	case e.events <- ev:
		return true
	default:
		e.lostEvents.Add(1)
		return false
	}
}
