package api

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"

	"go.fd.io/govpp/adapter/socketclient"
	"go.fd.io/govpp/core"
	"go.uber.org/goleak"

	"github.com/weftnet/weft/internal/unixsocket"
	"github.com/weftnet/weft/vswitch/model"
	"github.com/weftnet/weft/vswitch/model/modeltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testServer is a server on a fake engine.
type testServer struct {
	*Server
	engine *modeltest.Engine
	path   string
}

// prepare creates a server; serve starts it.
func prepare(t testing.TB, limits Limits) testServer {
	t.Helper()
	engine := modeltest.New()
	log := slog.New(slog.DiscardHandler)
	if testing.Verbose() {
		log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	m := model.New(engine, log)
	r := testServer{Server: New(m, log, limits), engine: engine, path: filepath.Join(t.TempDir(), "api.sock")}
	m.Interfaces.Notify(r.InterfaceChanged)
	return r
}

func (r testServer) serve(t testing.TB) {
	t.Helper()
	l, err := unixsocket.Listen(context.Background(), "unix", r.path)
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
}

func start(t testing.TB, limits Limits) testServer {
	t.Helper()
	r := prepare(t, limits)
	r.serve(t)
	return r
}

// connect connects a govpp client.
func (r testServer) connect(t testing.TB) *core.Connection {
	t.Helper()
	conn, err := core.Connect(socketclient.NewVppClient(r.path))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Disconnect)
	return conn
}
