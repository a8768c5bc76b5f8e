package vswitch

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"

	"golang.org/x/sync/errgroup"

	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/vswitch/api"
	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/model"
)

// Config says how a dataplane runs.
type Config struct {
	APISocket string       // where the binary API is served; its directory is made if need be
	Workers   int          // forwarding threads; 0: one
	Log       *slog.Logger // nil: none
}

// Run runs the dataplane until ctx ends, then takes its interfaces off the machine and removes the socket.
// Only one can run on an API socket: a second one gets ErrRunning. It starts empty: who uses it makes everything anew.
func Run(ctx context.Context, c Config) error {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	lock, err := takeLock(c.APISocket)
	if err != nil {
		return err
	}
	defer lock.release()
	memif.Prepare()
	engine, err := forward.New(forward.Config{Workers: c.Workers, Log: c.Log})
	if err != nil {
		return err
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
	g.Go(func() error {
		defer stopPath()
		return serve(serveCtx, c, m)
	})
	return g.Wait()
}

// serve answers the API until ctx ends.
func serve(ctx context.Context, c Config, m *model.Model) error {
	server := api.New(m, c.Log, api.Limits{})
	m.Notify(server.InterfaceChanged)
	l, err := api.Listen(ctx, c.APISocket)
	if err != nil {
		return err
	}
	c.Log.Info("dataplane ready", "socket", c.APISocket, "pid", os.Getpid())
	err = server.Serve(ctx, l)
	c.Log.Info("dataplane stopping", "socket", c.APISocket)
	return err
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
