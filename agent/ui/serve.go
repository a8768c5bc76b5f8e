package ui

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/google/renameio/v2"
	"golang.org/x/sync/errgroup"

	"github.com/weftnet/weft/internal/httplimit"
	"github.com/weftnet/weft/internal/loopback"
	"github.com/weftnet/weft/internal/retry"
	"github.com/weftnet/weft/internal/unixsocket"
)

// Limits of a client's requests.
const (
	headerTimeout  = 5 * time.Second
	requestTimeout = 10 * time.Second
	replyTimeout   = 30 * time.Second // for a request and its reply; streams set their own deadlines
	idleTimeout    = time.Minute
	maxHeaderBytes = 16 << 10
)

// maxConnections is the number of open connections. A page has one for its stream, and few others.
const maxConnections = 128

const (
	shutdownTimeout  = 2 * time.Second  // for replies in progress
	maxListenBackoff = 10 * time.Second // between attempts to listen
)

// Server serves the page on a unix socket and, if Listen is set, on loopback TCP. Pods do not depend on it: if it
// cannot listen, it logs a warning and retries.
type Server struct {
	Socket    string // "": none
	Listen    string // loopback address of TCP; "": none
	TokenFile string // for TCP: the agent writes a new token at each start
	Handler   http.Handler
	Log       *slog.Logger
}

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	if s.Socket != "" {
		group.Go(func() error { return s.keep(ctx, s.listenUnix, s.Handler) })
	}
	if s.Listen != "" {
		group.Go(func() error { return s.runTCP(ctx) })
	}
	<-ctx.Done()
	return errors.Join(ctx.Err(), group.Wait())
}

func (s *Server) listenUnix(ctx context.Context) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(s.Socket), 0o755); err != nil {
		return nil, fmt.Errorf("directory of the page's socket: %w", err)
	}
	return unixsocket.Listen(ctx, "unix", s.Socket)
}

// runTCP serves clients with the token of the file.
func (s *Server) runTCP(ctx context.Context) error {
	if err := loopback.Address(s.Listen); err != nil {
		return fmt.Errorf("ui.listen: %w", err)
	}
	token := loopback.NewToken()
	_, port, _ := net.SplitHostPort(s.Listen)
	guard := loopback.New(token, port, false)
	listen := func(ctx context.Context) (net.Listener, error) {
		if err := renameio.WriteFile(s.TokenFile, []byte(token+"\n"), 0o600, renameio.IgnoreUmask()); err != nil {
			return nil, fmt.Errorf("write the token: %w", err)
		}
		var config net.ListenConfig
		return config.Listen(ctx, "tcp", s.Listen)
	}
	return s.keep(ctx, listen, guard.Protect(s.Handler))
}

// keep listens and serves until ctx ends, and retries after errors.
func (s *Server) keep(
	ctx context.Context, listen func(context.Context) (net.Listener, error), handler http.Handler,
) error {
	for ctx.Err() == nil {
		listener, err := s.listenUntil(ctx, listen)
		if err != nil {
			return ctx.Err()
		}
		s.Log.Info("the page is served", "address", listener.Addr().String())
		if err := s.serve(ctx, listener, handler); ctx.Err() == nil {
			s.Log.Warn("the page is no longer served, retrying", "err", err)
		}
	}
	return ctx.Err()
}

func (s *Server) listenUntil(
	ctx context.Context, listen func(context.Context) (net.Listener, error),
) (net.Listener, error) {
	warned := false
	try := func() (net.Listener, error) {
		listener, err := listen(ctx)
		if err != nil && !warned {
			warned = true
			s.Log.Warn("the page is not served, retrying", "err", err)
		}
		return listener, err
	}
	return retry.Until(ctx, 200*time.Millisecond, maxListenBackoff, try)
}

// serve serves until ctx ends or the listener fails. Requests end with ctx.
func (s *Server) serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      replyTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ConnState:         httplimit.Connections(maxConnections),
		ErrorLog:          slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
	stopped := make(chan error, 1)
	failed := make(chan struct{})
	go func() {
		select {
		case <-ctx.Done():
		case <-failed:
		}
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		stopped <- errors.Join(server.Shutdown(last), server.Close())
	}()
	err := server.Serve(listener)
	close(failed)
	return errors.Join(err, <-stopped)
}
