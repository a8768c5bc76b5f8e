// Package web serves metrics and health over HTTP.
package web

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/internal/httplimit"
	"github.com/weftnet/weft/internal/retry"
)

// Limits of a client's requests.
const (
	headerTimeout  = 5 * time.Second
	requestTimeout = 10 * time.Second
	replyTimeout   = 30 * time.Second
	idleTimeout    = time.Minute
	maxHeaderBytes = 16 << 10
)

// maxConnections is the number of open connections, of all clients. Prometheus and kubelet need one each.
const maxConnections = 128

const (
	shutdownTimeout  = 2 * time.Second  // for replies in progress
	maxListenBackoff = 10 * time.Second // between attempts to listen
)

// Endpoint serves HTTP on one address. Pods do not depend on it: if the address is in use, it logs a warning and
// retries.
type Endpoint struct {
	Address string // "" disables the server
	Handler http.Handler
	Log     *slog.Logger

	listener net.Listener // nil while it does not listen
}

// Routes returns the handler of all pages: /metrics, /healthz and /readyz.
func Routes(metrics http.Handler, conditions *health.Conditions) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics)
	mux.HandleFunc("GET /healthz", readiness(conditions))
	mux.HandleFunc("GET /readyz", readiness(conditions))
	return mux
}

// readiness replies like the gRPC health service, with the reason.
func readiness(conditions *health.Conditions) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		code := http.StatusOK
		text := "ready"
		if err := conditions.Missing(); err != nil {
			code = http.StatusServiceUnavailable
			text = err.Error()
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(code)
		_, _ = fmt.Fprintln(w, text) // the client may be gone
	}
}

// listen opens the listener.
func (e *Endpoint) listen(ctx context.Context) (err error) {
	var config net.ListenConfig
	e.listener, err = config.Listen(ctx, "tcp", e.Address)
	if err == nil {
		e.Log.Info("metrics and health are served", "address", e.listener.Addr().String())
	}
	return err
}

// Listen listens once, so that clients are served before Run; Run retries if it fails.
func (e *Endpoint) Listen(ctx context.Context) {
	if e.Address == "" {
		return
	}
	if err := e.listen(ctx); err != nil {
		e.Log.Warn("metrics and health are not served, retrying: set http.listen to another address, or to \"\"",
			"address", e.Address, "err", err)
	}
}

// Run serves until ctx ends.
func (e *Endpoint) Run(ctx context.Context) error {
	for e.Address != "" && ctx.Err() == nil {
		if e.listener == nil && e.listenUntil(ctx) != nil {
			return ctx.Err()
		}
		if err := e.serve(ctx); ctx.Err() == nil {
			e.Log.Error("metrics and health are no longer served, retrying", "address", e.Address, "err", err)
		}
	}
	return ctx.Err()
}

// listenUntil retries until it listens or ctx ends.
func (e *Endpoint) listenUntil(ctx context.Context) error {
	try := func() (struct{}, error) { return struct{}{}, e.listen(ctx) }
	_, err := retry.Until(ctx, 200*time.Millisecond, maxListenBackoff, try)
	return err
}

// serve serves until ctx ends or the listener fails.
func (e *Endpoint) serve(ctx context.Context) error {
	server := &http.Server{
		Handler: e.Handler, ReadHeaderTimeout: headerTimeout, ReadTimeout: requestTimeout, WriteTimeout: replyTimeout,
		IdleTimeout:    idleTimeout,
		MaxHeaderBytes: maxHeaderBytes,
		ConnState:      httplimit.Connections(maxConnections),
		ErrorLog:       slog.NewLogLogger(e.Log.Handler(), slog.LevelDebug),
	}
	stopped := make(chan error, 1)
	failed := make(chan struct{})
	go func() {
		select {
		case <-ctx.Done():
		case <-failed:
		}
		last, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
		defer cancel()
		stopped <- errors.Join(server.Shutdown(last), server.Close())
	}()
	err := server.Serve(e.listener)
	e.listener = nil
	close(failed)
	return errors.Join(err, <-stopped)
}
