package vpp

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/vswitch"
)

// ruins is a dataplane that the test can kill and start again at the same socket: the VPP that WEFT_VPP names, or else
// the embedded dataplane in this process, where the race detector sees it.
type ruins struct {
	socket string
	vpp    *dataplane.Dataplane // nil: embedded
	stop   context.CancelFunc
	done   chan error
}

func newRuins(t *testing.T) *ruins {
	t.Helper()
	netnstest.Require(t)
	if dataplane.Prefix() != "" {
		d := dataplane.Run(t, dataplane.Options{})
		return &ruins{socket: d.Socket(), vpp: d}
	}
	dir, err := os.MkdirTemp("", "vpp") // short: a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	r := &ruins{socket: filepath.Join(dir, "api.sock")}
	r.start(t)
	t.Cleanup(func() {
		r.kill(t)
		_ = os.RemoveAll(dir)
	})
	return r
}

func (r *ruins) start(t *testing.T) {
	t.Helper()
	if r.vpp != nil {
		if err := r.vpp.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	r.done = make(chan error, 1)
	go func() { r.done <- vswitch.Run(ctx, vswitch.Config{APISocket: r.socket}) }()
}

func (r *ruins) kill(t *testing.T) {
	t.Helper()
	if r.vpp != nil {
		if err := r.vpp.Kill(); err != nil {
			t.Fatal(err)
		}
		return
	}
	r.stop()
	if err := <-r.done; err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("dataplane: %v", err)
	}
}
