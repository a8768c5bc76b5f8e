package vswitch

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.fd.io/govpp/adapter/socketclient"
	"go.fd.io/govpp/binapi/memclnt"
	"go.fd.io/govpp/core"
)

// running is a dataplane in this process.
type running struct {
	socket string
	stop   context.CancelFunc
	done   chan error
}

func start(t *testing.T) *running {
	t.Helper()
	r := &running{socket: filepath.Join(t.TempDir(), "run", "api.sock"), done: make(chan error, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	go func() { r.done <- Run(ctx, Config{APISocket: r.socket, Log: log}) }()
	t.Cleanup(func() {
		cancel()
		if err := <-r.done; err != nil {
			t.Error("run:", err)
		}
	})
	eventually(t, func() bool {
		_, err := os.Stat(r.socket)
		return err == nil
	})
	return r
}

func (r *running) connect(t *testing.T) *core.Connection {
	t.Helper()
	conn, err := core.Connect(socketclient.NewVppClient(r.socket))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Disconnect)
	return conn
}

// eventually fails the test unless expected becomes true in time.
func eventually(t testing.TB, expected func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !expected() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("not in time")
		}
	}
}

func TestSecondDataplaneOnTheSocketIsRejected(t *testing.T) {
	r := start(t)
	err := Run(t.Context(), Config{APISocket: r.socket})
	if !errors.Is(err, ErrRunning) || !strings.Contains(err.Error(), strconv.Itoa(os.Getpid())) {
		t.Fatalf("second Run: %v", err)
	}
	if _, err := memclnt.NewServiceClient(r.connect(t)).ControlPing(t.Context(), &memclnt.ControlPing{}); err != nil {
		t.Fatal("the first does not answer any more:", err)
	}
}

// startStandby runs a dataplane that waits for another one.
func startStandby(t *testing.T, c Config) *running {
	t.Helper()
	r := &running{socket: c.APISocket, done: make(chan error, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	c.Standby = true
	go func() { r.done <- Run(ctx, c) }()
	t.Cleanup(func() {
		cancel()
		if err := <-r.done; err != nil {
			t.Error("run:", err)
		}
	})
	eventually(t, func() bool {
		s := StatusOf(t.Context(), c.APISocket)
		return s.Standby != nil && s.Standby.Name == c.Name
	})
	return r
}

func TestStandbyTakesOverWhenTheActiveDataplaneEnds(t *testing.T) {
	first := start(t)
	startStandby(t, Config{APISocket: first.socket, Name: "second"})
	if s := StatusOf(t.Context(), first.socket); s.Active == nil || s.Active.Name != "" ||
		s.Active.PID != strconv.Itoa(os.Getpid()) {
		t.Errorf("while the standby waits the active dataplane is %v", s.Active)
	}
	first.stop()
	eventually(t, func() bool {
		s := StatusOf(t.Context(), first.socket)
		return s.Active != nil && s.Active.Name == "second" && s.Standby == nil
	})
	if _, err := memclnt.NewServiceClient(first.connect(t)).ControlPing(t.Context(),
		&memclnt.ControlPing{}); err != nil {
		t.Error("the standby does not answer:", err)
	}
}

func TestStoppedStandbyDoesNotDisturbTheActiveDataplane(t *testing.T) {
	first := start(t)
	second := startStandby(t, Config{APISocket: first.socket, Name: "second"})
	second.stop()
	eventually(t, func() bool { return StatusOf(t.Context(), first.socket).Standby == nil })
	if _, err := memclnt.NewServiceClient(first.connect(t)).ControlPing(t.Context(),
		&memclnt.ControlPing{}); err != nil {
		t.Error("the active dataplane does not answer any more:", err)
	}
	if err := Run(t.Context(), Config{APISocket: first.socket}); !errors.Is(err, ErrRunning) {
		t.Errorf("the lock is free: %v", err)
	}
}

func TestSocketIsRemovedWithTheDataplane(t *testing.T) {
	r := start(t)
	r.stop()
	if err := <-r.done; err != nil {
		t.Fatal("run:", err)
	}
	if _, err := os.Lstat(r.socket); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal("socket is still there:", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { r.done <- Run(ctx, Config{APISocket: r.socket}) }()
	eventually(t, func() bool {
		_, err := os.Stat(r.socket)
		return err == nil
	})
	cancel()
	if err := <-r.done; err != nil {
		t.Fatal("second run:", err)
	}
	r.done <- nil // for the cleanup
}

func TestRunFailsWithoutASocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "api.sock")
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Run(t.Context(), Config{APISocket: path}); err == nil {
		t.Fatal("ran over a file")
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "precious" {
		t.Fatal("the file was touched:", err)
	}
}
