package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Bounds of what a client can make the endpoint do.
const (
	headerLimit   = 5 * time.Second
	requestLimit  = 10 * time.Second
	answerLimit   = 30 * time.Second
	idleLimit     = time.Minute
	mostHeader    = 16 << 10 // bytes
	lastAnswers   = 2 * time.Second
	listenAgainIn = 10 * time.Second // at most
)

// endpoint serves HTTP on one address. Pods do not depend on it: where the address is taken it says so and tries again.
type endpoint struct {
	address  string
	handler  http.Handler
	log      *slog.Logger
	listener net.Listener // nil: there is none yet
}

// routes are all that is served.
func (a *Agent) routes() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", a.metrics)
	mux.HandleFunc("GET /healthz", a.answerHealth)
	mux.HandleFunc("GET /readyz", a.answerHealth)
	return mux
}

// answerHealth says what gRPC health says, and why.
func (a *Agent) answerHealth(w http.ResponseWriter, _ *http.Request) {
	code, text := http.StatusOK, "ready"
	if err := a.health.Missing(); err != nil {
		code, text = http.StatusServiceUnavailable, err.Error()
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_, _ = fmt.Fprintln(w, text) // a client that has gone need not know
}

// open listens.
func (e *endpoint) open(ctx context.Context) (err error) {
	var config net.ListenConfig
	e.listener, err = config.Listen(ctx, "tcp", e.address)
	if err == nil {
		e.log.Info("metrics and health are served", "address", e.listener.Addr().String())
	}
	return err
}

// openFirst listens if that is possible at once.
func (e *endpoint) openFirst(ctx context.Context) {
	if e.address == "" {
		return
	}
	if err := e.open(ctx); err != nil {
		e.log.Warn("metrics and health are not served, trying again: set http.listen to another address, or to \"\"", "address", e.address, "err", err)
	}
}

// run serves until ctx ends.
func (e *endpoint) run(ctx context.Context) error {
	for e.address != "" && ctx.Err() == nil {
		if e.listener == nil && e.openAgain(ctx) != nil {
			return ctx.Err()
		}
		if err := e.serve(ctx); ctx.Err() == nil {
			e.log.Error("metrics and health are not served any more, trying again", "address", e.address, "err", err)
		}
	}
	return ctx.Err()
}

// openAgain tries until it listens or ctx ends.
func (e *endpoint) openAgain(ctx context.Context) error {
	delay := backoff.NewExponentialBackOff()
	delay.InitialInterval, delay.MaxInterval = 200*time.Millisecond, listenAgainIn
	try := func() (struct{}, error) { return struct{}{}, e.open(ctx) }
	_, err := backoff.Retry(ctx, try, backoff.WithBackOff(delay), backoff.WithMaxElapsedTime(0))
	return err
}

// serve answers until ctx ends or the listener fails.
func (e *endpoint) serve(ctx context.Context) error {
	server := &http.Server{
		Handler:           e.handler,
		ReadHeaderTimeout: headerLimit, ReadTimeout: requestLimit, WriteTimeout: answerLimit, IdleTimeout: idleLimit, MaxHeaderBytes: mostHeader,
		ErrorLog: slog.NewLogLogger(e.log.Handler(), slog.LevelDebug),
	}
	stopped := make(chan error, 1)
	failed := make(chan struct{})
	go func() {
		select {
		case <-ctx.Done():
		case <-failed:
		}
		stopped <- e.stop(server)
	}()
	err := server.Serve(e.listener)
	e.listener = nil
	close(failed)
	return errors.Join(err, <-stopped)
}

// stop lets answers under way end for a moment.
func (e *endpoint) stop(server *http.Server) error {
	last, cancel := context.WithTimeout(context.Background(), lastAnswers)
	defer cancel()
	return errors.Join(server.Shutdown(last), server.Close())
}
