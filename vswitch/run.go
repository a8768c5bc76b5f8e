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
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/weftnet/weft/internal/unixsocket"
	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/vswitch/api"
	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/model"
	"github.com/weftnet/weft/vswitch/stats"
)

// Config says how a dataplane runs.
type Config struct {
	APISocket   string       // where the binary API is served; its directory is made if need be
	Standby     bool         // wait while another dataplane runs on the API socket, and take over when it ends
	Name        string       // what the lock file calls this process beside its pid; "": nothing
	StatsSocket string       // where the stats segment is served; "": StatsSocket(APISocket)
	Workers     int          // forwarding threads; 0: one
	StormLimit  int          // copies a second of one interface's flooded frames, for each thread; 0: DefaultStormLimit, below 0: none
	Log         *slog.Logger // nil: none
	MemifBroker []string     // arguments with which this program calls ServeMemifBroker; none: this process holds the sockets of memif clients
}

// DefaultStormLimit is what Config.StormLimit is by default.
const DefaultStormLimit = forward.DefaultStormLimit

// StatsSocket is the default path of the stats socket for an API socket: beside it, as VPP's api.sock and stats.sock are.
func StatsSocket(apiSocket string) string {
	if beginning, ok := strings.CutSuffix(apiSocket, "api.sock"); ok {
		return beginning + "stats.sock"
	}
	return apiSocket + ".stats"
}

// Run runs the dataplane until ctx ends, then takes its interfaces off the machine and removes the socket.
// Only one can run on an API socket: a second one gets ErrRunning, or waits if it is a standby. It starts empty: who uses it makes
// everything anew.
func Run(ctx context.Context, c Config) error {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	// The kernel closes the files of a killed process in the reverse order of their descriptors. The lock's is the first, so that all
	// interfaces are gone when a standby gets the lock.
	lock, err := openLock(LockPath(c.APISocket))
	if err != nil {
		return err
	}
	defer lock.release()
	if err := lock.take(c.Name); err != nil && !(c.Standby && errors.Is(err, ErrRunning)) {
		return err
	}
	// A standby does here what takes time, and makes nothing yet that others could notice.
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
	if !lock.held {
		if err := lock.awaitTurn(ctx, c); ctx.Err() != nil {
			return nil // a standby that is not needed any more
		} else if err != nil {
			return err
		}
	}
	defer lock.release() // at once: the broker's end takes longer
	return forwardPackets(ctx, c, broker)
}

// forwardPackets is the dataplane that holds the lock.
func forwardPackets(ctx context.Context, c Config, broker *memif.Broker) error {
	// The stats socket listens before the API socket: a client that reaches the API finds the counters.
	counters, err := listenPrivately(ctx, "unixpacket", cmp.Or(c.StatsSocket, StatsSocket(c.APISocket)))
	if err != nil {
		return err
	}
	engine, err := forward.New(forward.Config{Workers: c.Workers, Log: c.Log, StormLimit: c.StormLimit, MemifBroker: broker})
	if err != nil {
		return errors.Join(err, counters.Close())
	}
	// The packet path outlives the server: a request that is being answered needs it.
	pathCtx, stopPath := context.WithCancel(context.WithoutCancel(ctx))
	defer stopPath()
	g, serveCtx := errgroup.WithContext(ctx)
	m := model.New(engine, c.Log)
	m.SetRunDir(filepath.Dir(c.APISocket))
	g.Go(func() error {
		if err := engine.Run(pathCtx); err != nil {
			return fmt.Errorf("forward: %w", err)
		}
		return nil
	})
	g.Go(func() error {
		m.Watch(pathCtx, engine.Events())
		return nil
	})
	published := &stats.Server{Source: func() stats.Reading { return reading(c, m, engine) }, Log: c.Log}
	g.Go(func() error { return published.Serve(serveCtx, counters) })
	g.Go(func() error {
		defer stopPath()
		return serve(serveCtx, c, m)
	})
	return g.Wait()
}

// ServeMemifBroker is the process that Config.MemifBroker starts. It calls confine, unless that is nil, before it serves clients.
func ServeMemifBroker(confine func()) error { return memif.ServeBroker(confine) }

// reading collects what the packet path has counted.
func reading(c Config, m *model.Model, engine *forward.Engine) stats.Reading {
	r := stats.Reading{Workers: max(c.Workers, 1)}
	for _, t := range m.Traffic() {
		r.Interfaces = append(r.Interfaces, stats.Interface{
			Index: t.Index, Name: t.Name,
			Rx:    stats.Combined{Packets: t.RxPackets, Bytes: t.RxBytes},
			Tx:    stats.Combined{Packets: t.TxPackets, Bytes: t.TxBytes},
			Drops: t.Drops, Punts: t.Punts, IP4: t.RxIP4, IP6: t.RxIP6, TxErrors: t.TxErrors,
		})
	}
	counts := engine.Errors()
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		r.Errors = append(r.Errors, stats.Error{Name: name, Count: counts[name]})
	}
	return r
}

// serve answers the API until ctx ends.
func serve(ctx context.Context, c Config, m *model.Model) error {
	server := api.New(m, c.Log, api.Limits{})
	m.Notify(server.InterfaceChanged)
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

// TuneThreads lets the Go scheduler run as many threads as there are processors beside the workers: one that looks for
// frames keeps its share for itself, and who answers the API must not wait for it.
func TuneThreads(workers int) {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(runtime.NumCPU() + workers)
	}
}

// TuneMemory sets the garbage collector for a process that does nothing else, where the environment has not.
func TuneMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(forward.AdvisedGCPercent)
	}
	if debug.SetMemoryLimit(-1) == math.MaxInt64 {
		debug.SetMemoryLimit(forward.AdvisedMemoryLimit)
	}
}
