// Package packets measures the memif forwarding of weft-vswitch, and compares it with DPDK's testpmd and with VPP.
package packets

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/test/peers"
)

// Config has the parameters of the measurements.
type Config struct {
	Out      io.Writer
	Programs string        // the directory of weft-vswitch
	Duration time.Duration // of one measurement
	Rounds   int           // measurements per figure

	OnlyVersus bool // measure only weft-vswitch beside VPP
	OnlyPolicy bool // measure only ACLs, on weft-vswitch beside VPP
}

// Threads are pinned: the dataplane's worker to one processor, the load generator to another.
const (
	workerProcessor = 0
	testerProcessor = 1
)

// sizes are frame sizes in bytes, without a checksum.
var sizes = []int{64, 512, 1500}

// run is one run of all measurements.
type run struct {
	Config
	dir       string
	dataplane *dataplane
	testpmd   peers.Program
	verdicts  verdicts
}

// Run measures and prints. Without testpmd it skips the measurements that need it, and prints that.
func Run(ctx context.Context, c Config) (err error) {
	// Two threads of this process poll on a processor each; the API needs another thread.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(runtime.NumCPU() + 2))
	dir, err := os.MkdirTemp("", "weft-packets-")
	if err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	r := &run{Config: c, dir: dir}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	switch {
	case c.OnlyVersus:
		return errors.Join(r.versus(ctx, scenarios()), r.verdicts.report(c.Out))
	case c.OnlyPolicy:
		return errors.Join(r.versus(ctx, policyScenarios()), r.verdicts.report(c.Out))
	}
	load, _ := os.ReadFile("/proc/loadavg") // optional
	fmt.Fprintf(c.Out, method, splits*c.Rounds, c.Duration/splits, load)
	if r.dataplane, err = startVSwitch(ctx, filepath.Join(c.Programs, "weft-vswitch"), dir); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.dataplane.stop()) }()
	if r.testpmd, err = peers.Testpmd(); err != nil {
		fmt.Fprintf(c.Out, "bench: memif against testpmd is left out: %v\n", err)
	} else if err := r.compare(ctx); err != nil {
		return err
	}
	for _, measure := range []func(context.Context) error{r.cost, r.latency, r.gaps, r.idle} {
		if err := measure(ctx); err != nil {
			return err
		}
	}
	if err := r.versus(ctx, scenarios()); err != nil {
		return err
	}
	return r.verdicts.report(c.Out)
}

const method = `
memif: weft-vswitch with one worker on processor 0, the load generator on processor 1. Of testpmd the best
of %d rounds of %s, since others on the machine can only make it worse; ns/packet is the worker's time on its processor, which
it spends whether or not there is a packet. Load of the machine before: %s`

// pair connects to two memifs of the vswitch, with rings that are long enough for pauses of the worker.
func (r *run) pair(ctx context.Context, w memifPair) (*link, error) {
	return r.dataplane.pair(ctx, w, 2048)
}

// pair connects to two memifs.
func (d *dataplane) pair(ctx context.Context, w memifPair, slots int) (pair *link, err error) {
	l := &link{}
	for i, id := range w.ids {
		c := memif.ClientConfig{Socket: d.memifSocket(), ID: id, RingSize: slots, Name: fmt.Sprintf("bench%d", i)}
		if l.ends[i], err = connect(ctx, c); err != nil {
			l.close()
			return nil, fmt.Errorf("connect to memif %d: %w", id, err)
		}
	}
	return l, nil
}

// connect retries until the previous client is disconnected.
func connect(ctx context.Context, c memif.ClientConfig) (*memif.Conn, error) {
	for deadline := time.Now().Add(timeout); ; {
		conn, err := memif.Connect(ctx, c)
		if refused := new(memif.DisconnectError); err == nil || !errors.As(err, &refused) ||
			time.Now().After(deadline) {
			return conn, err
		}
		if err := await(ctx, 10*time.Millisecond); err != nil {
			return nil, err
		}
	}
}
