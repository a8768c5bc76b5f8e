package southbound

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/agent/health"
)

// supervised runs a southbound whose weft-vswitch does nothing but leave a file behind.
func supervised(t *testing.T, socket string) (started string) {
	t.Helper()
	dir := t.TempDir()
	started = filepath.Join(dir, "started")
	program := filepath.Join(dir, "weft-vswitch")
	if err := os.WriteFile(program, fmt.Appendf(nil, "#!/bin/sh\ntouch %s\n", started), 0o755); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	dataplane := config.Dataplane{
		Type:    config.Embedded,
		Socket:  socket,
		Program: program,
		Log:     filepath.Join(dir, "log"),
	}
	run(t, New(config.Config{Dataplane: dataplane}, log, health.New("", log)))
	return started
}

// run runs a southbound until the test ends.
func run(t *testing.T, s *Dataplane) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

func TestADataplaneThatDiesBeforeTheHandshakeIsStartedAnew(t *testing.T) {
	dir, err := os.MkdirTemp("", "weft") // short, as a socket's path must be
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	dying, err := net.Listen("unix", filepath.Join(dir, "api.sock"))
	if err != nil {
		t.Fatal(err)
	}
	started := supervised(t, filepath.Join(dir, "api.sock"))
	for range 2 { // who looks whether it answers, and who wants to talk
		conn, err := dying.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
	}
	if err := dying.Close(); err != nil {
		t.Fatal(err)
	}
	deadline := time.After(time.Minute)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := os.Stat(started); err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("no new dataplane was started")
		}
	}
}

func TestWhyThereIsNoDataplaneIsSaidInOneLine(t *testing.T) {
	deaf, err := net.Listen("unix", filepath.Join(t.TempDir(), "deaf.sock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = deaf.Close() }) // it accepts no connection
	for socket, why := range map[string]string{
		"/nowhere/api.sock":  "no such file",
		deaf.Addr().String(): "shake hands",
	} {
		t.Run(why, func(t *testing.T) {
			log := slog.New(slog.DiscardHandler)
			h := health.New("", log)
			run(t, New(config.Config{Dataplane: config.Dataplane{Type: config.VPP, Socket: socket}}, log, h))
			deadline := time.After(time.Minute)
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for waiting := true; waiting && !strings.Contains(h.Missing().Error(), why); {
				select {
				case <-tick.C:
				case <-deadline:
					waiting = false
				}
			}
			if said := h.Missing().Error(); !strings.Contains(said, why) || strings.Contains(said, "\n") {
				t.Errorf("the agent says %q, which is no line with %q", said, why)
			}
		})
	}
}

func TestOnlyTheEmbeddedDataplaneOfOnesOwnIsStarted(t *testing.T) {
	tests := []struct {
		name   string
		config config.Dataplane
		starts bool
	}{
		{"the embedded one is", config.Dataplane{Type: config.Embedded}, true},
		{"one that a DaemonSet runs is not", config.Dataplane{Type: config.Embedded, External: true}, false},
		{"VPP is not", config.Dataplane{Type: config.VPP}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			log := slog.New(slog.DiscardHandler)
			if s := New(config.Config{Dataplane: tt.config}, log,
				health.New("", log)); (s.embedded != nil) != tt.starts {
				t.Errorf("the agent starts a dataplane: %v, want %v", !tt.starts, tt.starts)
			}
		})
	}
}
