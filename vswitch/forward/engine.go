package forward

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/weftnet/weft/memif"
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
