package agent

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"golang.org/x/sync/errgroup"

	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/dataplane/vpp"
	"github.com/weftnet/weft/ipnet"
)

// southbound is the connection to the dataplane and, where that is the embedded one, what keeps it alive.
type southbound struct {
	client   *vpp.Client
	embedded *embedded // nil: another component runs the dataplane
	health   *health.Conditions
	log      *slog.Logger

	replay    func(context.Context, *connection) error // the dataplane may be a new process: read it back and repair it
	connected chan struct{}                            // closed by the first connection
	again     chan struct{}                            // holds a token when a connection was made anew
	lost      chan struct{}                            // holds a token when the connection broke
	up        atomic.Bool                              // there is a connection

	mu      sync.Mutex
	current *connection // the last one that was made; nil before the first

	onReconnect func()                   // told of each connection but the first
	onReplay    func(took time.Duration) // told of each replay
	onDisturbed func(vpp.Index)          // told of each interface that was deleted or set down
}

// connection is one connection to the dataplane, which may be another process than that of the connection before.
type connection struct {
	version string
	ended   chan struct{} // closed when it broke
	lostAt  time.Time     // when it broke; to be read once ended is closed
}

// isLost reports whether the connection broke.
func (c *connection) isLost() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

func newSouthbound(c config.Config, log *slog.Logger, conditions *health.Conditions) *southbound {
	s := &southbound{
		health: conditions, log: log, connected: make(chan struct{}), again: make(chan struct{}, 1), lost: make(chan struct{}, 1),
		onReconnect: func() {}, onReplay: func(time.Duration) {}, onDisturbed: func(vpp.Index) {},
	}
	if c.Dataplane.Type == config.Embedded && !c.Dataplane.External {
		s.embedded = &embedded{config: c.Dataplane, log: log}
	}
	s.client = vpp.New(c.Dataplane.Socket, vpp.Options{
		Sockets:        c.Devices.Memif.Directory,
		Rings:          c.Dataplane.Rings(),
		VethsPerThread: cmp.Or(c.Dataplane.VethsPerThread, -1),
		NodeLink:       ipnet.IsNodes,
		GracePeriods:   gracePeriods(c, log),
		StatsSocket:    c.Dataplane.StatsSocket,
		RunDir:         filepath.Dir(c.Socket),
		Logger:         log.With("room", "dataplane"),
		Hold:           true,
		Connected:      s.onConnected,
		NotConnected:   func(err error) { s.health.Set(health.Dataplane, false, "not connected: "+err.Error()) },
		Lost:           s.onLost,
		Disturbed:      func(i vpp.Index) { s.onDisturbed(i) },
	})
	return s
}

// gracePeriods returns nil if RCU grace periods are not to be expedited, or cannot be. weft-vswitch waits for none.
func gracePeriods(c config.Config, log *slog.Logger) *vpp.GracePeriods {
	marker := filepath.Join(filepath.Dir(c.Socket), "rcu-expedited")
	if !c.Dataplane.ExpediteRCU || c.Dataplane.Type == config.Embedded {
		if err := vpp.RestoreGracePeriods(vpp.RCUExpedited, marker); err != nil {
			log.Warn("RCU grace periods stay expedited", "err", err)
		}
		return nil
	}
	err := openSettings(filepath.Dir(filepath.Dir(vpp.RCUExpedited)))
	if err == nil {
		var g *vpp.GracePeriods
		if g, err = vpp.NewGracePeriods(vpp.RCUExpedited, marker); err == nil {
			return g
		}
	}
	log.Warn("RCU grace periods are not expedited: each veth takes longer, on VPP some 40 ms", "err", err)
	return nil
}

// run keeps the dataplane connected, and the embedded one running, until ctx ends.
func (s *southbound) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.client.Run(ctx) })
	group.Go(func() error { return s.replays(ctx) })
	if s.embedded != nil {
		group.Go(func() error { return s.supervise(ctx) })
	}
	err := group.Wait()
	return errors.Join(err, s.client.Close())
}

// lookAgain is the time between two looks for a dataplane while there is no connection: one may have answered and died
// before there was any that could break.
const lookAgain = time.Second

// supervise starts the embedded dataplane where none answers: now, whenever the connection broke, and for as long as
// there is none.
func (s *southbound) supervise(ctx context.Context) error {
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for {
		if err := s.ensure(ctx); err != nil {
			return err
		}
		if err := s.awaitNeed(ctx, tick.C); err != nil {
			return err
		}
	}
}

// awaitNeed returns when it is time to look for a dataplane.
func (s *southbound) awaitNeed(ctx context.Context, tick <-chan time.Time) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.lost:
			return nil
		case <-tick:
			if !s.up.Load() {
				return nil
			}
		}
	}
}

// ensure tries until a dataplane answers; one that cannot be started must not become a busy loop.
func (s *southbound) ensure(ctx context.Context) error {
	delay := backoff.NewExponentialBackOff()
	delay.InitialInterval, delay.MaxInterval = 200*time.Millisecond, 30*time.Second
	try := func() (struct{}, error) {
		err := s.embedded.ensure(ctx)
		if err != nil && ctx.Err() == nil {
			s.health.Set(health.Dataplane, false, err.Error())
			s.log.Error("dataplane cannot be started, trying again", "err", err)
		}
		return struct{}{}, err
	}
	_, err := backoff.Retry(ctx, try, backoff.WithBackOff(delay), backoff.WithMaxElapsedTime(0))
	return err
}

// await returns once there was a connection.
func (s *southbound) await(ctx context.Context) error {
	select {
	case <-s.connected:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// replays brings a dataplane that was connected anew to what is desired, and only then calls it well: until then new pods
// are told to come again.
func (s *southbound) replays(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.again:
			c, began := s.connection(), time.Now()
			err := s.replay(ctx, c)
			switch took := time.Since(began); {
			case ctx.Err() != nil:
			case c.isLost():
				s.log.Warn("dataplane lost during its replay", "took", took)
			case err != nil:
				s.log.Error("replay left something to repair", "took", took, "err", err)
			default:
				s.log.Info("dataplane replayed", "took", took)
			}
			s.onReplay(time.Since(began))
			s.replayed(c)
		}
	}
}

// connection is the last connection that was made.
func (s *southbound) connection() *connection {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current
}

// replayed makes the dataplane ready, unless the connection was lost or replaced meanwhile.
func (s *southbound) replayed(c *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == c && !c.isLost() {
		s.health.Set(health.Dataplane, true, c.version)
	}
}

func (s *southbound) onConnected(version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := s.current == nil
	s.current = &connection{version: version, ended: make(chan struct{})}
	s.up.Store(true)
	if first {
		s.health.Set(health.Dataplane, true, version)
		close(s.connected) // the first resync is waiting for it, and reads everything back anyway
		return
	}
	s.onReconnect()
	s.health.Set(health.Dataplane, false, "connected again, replaying what is desired")
	select {
	case s.again <- struct{}{}:
	default: // one replay for both connections
	}
}

func (s *southbound) onLost(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.up.Store(false)
	s.current.lostAt = time.Now()
	close(s.current.ended)
	s.health.Set(health.Dataplane, false, "connection lost: "+err.Error())
	select {
	case s.lost <- struct{}{}:
	default: // a token is there already
	}
}
