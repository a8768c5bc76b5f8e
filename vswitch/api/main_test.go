package api

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"

	"go.fd.io/govpp/adapter/socketclient"
	"go.fd.io/govpp/core"
	"go.uber.org/goleak"

	"github.com/weftnet/weft/vswitch/model"
	"github.com/weftnet/weft/vswitch/model/modeltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// running is a server with the model and engine behind it.
type running struct {
	*Server
	engine *modeltest.Engine
	path   string
}

func start(t *testing.T, limits Limits) running {
	t.Helper()
	engine := modeltest.New()
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	m := model.New(engine, log)
	r := running{Server: New(m, log, limits), engine: engine, path: filepath.Join(t.TempDir(), "api.sock")}
	m.Notify(r.InterfaceChanged)
	l, err := Listen(t.Context(), r.path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error("serve:", err)
		}
	})
	return r
}

// connect connects an unmodified govpp client.
func (r running) connect(t *testing.T) *core.Connection {
	t.Helper()
	conn, err := core.Connect(socketclient.NewVppClient(r.path))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Disconnect)
	return conn
}
