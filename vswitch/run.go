// Package vswitch runs the embedded dataplane: the packet path, its control model, and the server of VPP's binary API.
package vswitch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/weftnet/weft/internal/statssocket"
	"github.com/weftnet/weft/internal/unixsocket"
	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/vswitch/api"
	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/model"
	"github.com/weftnet/weft/vswitch/stats"
)

// Config configures a dataplane.
type Config struct {
	APISocket   string // of the binary API; its directory is created if needed
	Standby     bool   // wait for the end of a dataplane on the API socket, and take over then
	NoHandover  bool   // neither hand the state over to a standby nor take it over from the active dataplane
	Name        string // in the lock file; "": none
	StatsSocket string // "": statssocket.Of(APISocket)
	Workers     int    // forwarding threads; 0: one
	Sessions    int    // that ACLs open on one interface; 0: DefaultSessions
	// copies per second of flooded frames of one interface, per thread; 0: DefaultStormLimit, negative: no limit
	StormLimit int
	Log        *slog.Logger // nil: none
	// arguments that make this program call ServeMemifBroker; none: this process owns the sockets of memif clients
	MemifBroker []string
}

// DefaultSessions is the default of Config.Sessions.
const DefaultSessions = forward.DefaultSessionLimit

// DefaultStormLimit is the default of Config.StormLimit.
const DefaultStormLimit = forward.DefaultStormLimit

// Run runs the dataplane until ctx ends, then deletes its interfaces and removes the socket. Only one dataplane can run
// on an API socket: another one gets ErrRunning, or waits if it is a standby. The dataplane starts without
// configuration.
func Run(ctx context.Context, c Config) error {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	// The kernel closes the files of a killed process in reverse order of their descriptors. The lock's is the first,
	// so all interfaces are gone when a standby gets the lock.
	lock, err := openLock(LockPath(c.APISocket))
	if err != nil {
		return err
	}
	defer lock.release()
	if err := lock.take(c.Name); err != nil && !(c.Standby && errors.Is(err, ErrRunning)) {
		return err
	}
	// A standby does slow preparations here, but nothing that is visible to others.
	if err := memif.Prepare(); err != nil {
		c.Log.Warn("clients of memifs are refused until there is asynchronous I/O: raise fs.aio-max-nr", "err", err)
	}
	var broker *memif.Broker
	if len(c.MemifBroker) > 0 {
		if broker, err = memif.StartBroker(c.Log, c.MemifBroker...); err != nil {
			return err
		}
		defer broker.Close()
	}
	var d *dataplane
	if !lock.held {
		if d, err = lock.awaitTurn(ctx, c, broker); ctx.Err() != nil && d == nil {
			return nil // the standby is no longer needed
		} else if err != nil {
			return err
		}
	}
	defer lock.release() // at once, because the broker takes longer to end
	if d == nil {
		if d, err = newDataplane(c, broker); err != nil {
			return err
		}
	}
	return d.run(ctx, lock)
}

// dataplane is the packet path with its control model.
type dataplane struct {
	Config
	engine *forward.Engine
	model  *model.Model
	// hands the ports over when the packet path ends; nil: they are closed
	pass func(open func() forward.OpenPorts) bool
}

// newDataplane returns a dataplane without configuration. Nothing is forwarded before run.
func newDataplane(c Config, broker *memif.Broker) (*dataplane, error) {
	d := &dataplane{Config: c}
	var err error
	d.engine, err = forward.New(forward.Config{
		Workers:      c.Workers,
		Log:          c.Log,
		StormLimit:   c.StormLimit,
		SessionLimit: c.Sessions,
		MemifBroker:  broker,
		HandOver:     func(open func() forward.OpenPorts) bool { return d.pass != nil && d.pass(open) },
	})
	if err != nil {
		return nil, err
	}
	d.model = model.New(d.engine, c.Log)
	d.model.MemifSockets.SetRunDir(filepath.Dir(c.APISocket))
	return d, nil
}

// run runs the dataplane that holds the lock.
func (d *dataplane) run(ctx context.Context, l *lock) error {
	// The packet path outlives the server, because pending requests use it.
	pathCtx, stopPath := context.WithCancel(context.WithoutCancel(ctx))
	defer stopPath()
	g, serveCtx := errgroup.WithContext(ctx)
	closed := make(chan struct{}) // the sockets, which a successor opens
	desk := newDesk(d.Log)
	defer desk.close()
	d.pass = func(open func() forward.OpenPorts) bool {
		if ctx.Err() == nil {
			return false // the packet path failed
		}
		<-closed
		return desk.handOver(d.model, open, l)
	}
	g.Go(func() error {
		if err := d.engine.Run(pathCtx); err != nil {
			return fmt.Errorf("forward: %w", err)
		}
		return nil
	})
	g.Go(func() error {
		d.model.Watch(pathCtx, d.engine.Events())
		return nil
	})
	g.Go(func() error {
		defer stopPath()
		defer close(closed)
		err := d.serveAll(serveCtx, desk)
		if desk.hasStandby() && ctx.Err() != nil {
			d.engine.Suspend()
		}
		return err
	})
	return g.Wait()
}

// serveAll serves all sockets until ctx ends.
func (d *dataplane) serveAll(ctx context.Context, at *desk) error {
	// The stats socket listens before the API socket, so that API clients find the counters.
	counters, err := listenPrivately(ctx, "unixpacket", cmp.Or(d.StatsSocket, statssocket.Of(d.APISocket)))
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	if !d.NoHandover {
		standbys, err := listenPrivately(ctx, "unixpacket", HandoverPath(d.APISocket))
		if err != nil {
			return errors.Join(err, counters.Close())
		}
		g.Go(func() error { return at.serve(ctx, standbys) })
	}
	published := &stats.Server{Source: func() stats.Reading { return reading(d.Config, d.model, d.engine) }, Log: d.Log}
	g.Go(func() error { return published.Serve(ctx, counters) })
	g.Go(func() error { return serve(ctx, d.Config, d.model) })
	return g.Wait()
}

// ServeMemifBroker runs the process that Config.MemifBroker starts. It calls confine, unless that is nil, before it
// serves clients.
func ServeMemifBroker(confine func()) error { return memif.ServeBroker(confine) }

// reading collects the counters.
func reading(c Config, m *model.Model, engine *forward.Engine) stats.Reading {
	r := stats.Reading{Workers: max(c.Workers, 1)}
	for _, t := range m.Interfaces.Traffic() {
		r.Interfaces = append(r.Interfaces, stats.Interface{
			Index: t.Index, Name: t.Name,
			Rx:    stats.Combined{Packets: t.RxPackets, Bytes: t.RxBytes},
			Tx:    stats.Combined{Packets: t.TxPackets, Bytes: t.TxBytes},
			Drops: t.Drops, Punts: t.Punts, IP4: t.RxIP4, IP6: t.RxIP6, TxErrors: t.TxErrors,
		})
	}
	for _, a := range m.ACLs.Hits() {
		one := stats.ACL{Index: a.Index}
		for _, h := range a.Rules {
			one.Matches = append(one.Matches, stats.Combined{Packets: h.Packets, Bytes: h.Bytes})
		}
		r.ACLs = append(r.ACLs, one)
	}
	for _, v := range m.Policers.Violations() {
		r.Violations = append(r.Violations, stats.Combined(v))
	}
	counts := engine.Errors()
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		r.Errors = append(r.Errors, stats.Error{Name: name, Count: counts[name]})
	}
	return r
}

// serve serves the API until ctx ends.
func serve(ctx context.Context, c Config, m *model.Model) error {
	server := api.New(m, c.Log, api.Limits{})
	m.Interfaces.Notify(server.InterfaceChanged)
	l, err := listenPrivately(ctx, "unix", c.APISocket)
	if err != nil {
		return err
	}
	c.Log.Info("dataplane ready", "socket", c.APISocket, "pid", os.Getpid())
	err = server.Serve(ctx, l)
	c.Log.Info("dataplane stopping", "socket", c.APISocket)
	return err
}

// listenPrivately creates a socket and its directory for root only.
func listenPrivately(ctx context.Context, network, path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("make directory of %s: %w", path, err)
	}
	return unixsocket.Listen(ctx, network, path)
}

// TuneThreads lets the Go scheduler run as many threads as there are CPUs, in addition to the workers: a polling worker
// never yields, and must not delay the API server.
func TuneThreads(workers int) {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(runtime.NumCPU() + workers)
	}
}

// Garbage collector settings of a dataplane process. The live heap is mostly buffers, which hold no pointers, and
// forwarding allocates nothing. So collections are rare at the default percentage, and the limit only keeps a burst of
// control work from doubling the heap. The values are estimates.
const (
	gcPercent   = 100
	memoryLimit = 256 << 20
)

// TuneMemory configures the garbage collector for a dataplane process, unless the environment does.
func TuneMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if debug.SetMemoryLimit(-1) == math.MaxInt64 {
		debug.SetMemoryLimit(memoryLimit)
	}
}
