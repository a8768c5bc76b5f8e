package controller

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/weftnet/weft/internal/httplimit"
)

// hungAfter is the time without a check of the lease after which a replica counts as hung. A failed check counts: if
// the API server does not answer, a restart does not help.
const hungAfter = 2 * time.Minute

// Limits of the clients of the health server. kubelet restarts a replica whose probes get no answer.
const (
	idleTimeout    = time.Minute
	maxHeaderBytes = 16 << 10
	maxConnections = 128 // of all clients
)

func (c *Controller) leaseChecked() {
	now := time.Now()
	c.lastCheck.Store(&now)
}

// Alive returns an error if the replica must be restarted.
func (c *Controller) Alive() error {
	if since := time.Since(*c.lastCheck.Load()); since > hungAfter {
		return fmt.Errorf("the last check of the lease was %v ago", since.Round(time.Second))
	}
	return nil
}

// Ready returns an error if the replica could not lead.
func (c *Controller) Ready() error {
	if missing := c.overview.Missing(); len(missing) > 0 {
		return errors.New("the API server has not shown yet: " + strings.Join(missing, ", "))
	}
	return nil
}

// ServeHealth answers probes at /livez and /readyz, and scrapes at /metrics, until ctx ends.
func (c *Controller) ServeHealth(ctx context.Context, listener net.Listener) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", probe(c.Alive))
	mux.HandleFunc("GET /readyz", probe(c.Ready))
	if c.config.Metrics != nil {
		mux.Handle("GET /metrics", c.config.Metrics)
	}
	server := &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       5 * time.Second,
		WriteTimeout:      5 * time.Second,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes, ConnState: httplimit.Connections(maxConnections),
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // probes need no graceful end
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve health: %w", err)
	}
	return ctx.Err()
}

func probe(check func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if err := check(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n")) // the client may be gone
	}
}
