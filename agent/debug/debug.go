// Package debug serves profiles of the agent on a unix socket, which only root can connect to.
package debug

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/pprof"
	"strconv"
	"time"

	"github.com/weftnet/weft/internal/unixsocket"
)

// Socket is the name of the socket, in the directory of the agent's socket.
const Socket = "debug.sock"

// Limits of a CPU profile.
const (
	defaultSeconds = 10
	maxSeconds     = 120
)

const (
	headerTimeout   = 5 * time.Second
	replyTimeout    = (maxSeconds + 30) * time.Second
	idleTimeout     = time.Minute
	shutdownTimeout = time.Second
)

// Serve serves profiles on the socket at path until ctx ends. Pods do not depend on it: it logs an error and does not
// serve then.
//
// The handlers are registered one by one: net/http/pprof would register more, on a mux that other servers may use.
func Serve(ctx context.Context, path string, log *slog.Logger) error {
	listener, err := unixsocket.Listen(ctx, "unix", path)
	if err != nil {
		log.Warn("profiles are not served", "err", err)
		<-ctx.Done()
		return ctx.Err()
	}
	server := &http.Server{
		Handler:           routes(),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       headerTimeout,
		WriteTimeout:      replyTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    16 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		stopped <- errors.Join(server.Shutdown(last), server.Close())
	}()
	if err := server.Serve(listener); ctx.Err() == nil {
		log.Warn("profiles are no longer served", "err", err)
		<-ctx.Done()
	}
	if err := <-stopped; err != nil {
		log.Debug("a profile was in progress", "err", err)
	}
	return ctx.Err()
}

func routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/profile", profileCPU)
	mux.HandleFunc("GET /debug/pprof/heap", snapshot("heap"))
	mux.HandleFunc("GET /debug/pprof/goroutine", snapshot("goroutine"))
	return mux
}

// snapshot serves a profile of this moment.
func snapshot(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/octet-stream")
		_ = pprof.Lookup(name).WriteTo(w, 0) // the client may be gone
	}
}

// profileCPU profiles for the seconds of the query, or until the client is gone.
func profileCPU(w http.ResponseWriter, r *http.Request) {
	seconds := defaultSeconds
	if text := r.URL.Query().Get("seconds"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxSeconds {
			http.Error(w, fmt.Sprintf("seconds: %q is not within 1 to %d", text, maxSeconds), http.StatusBadRequest)
			return
		}
		seconds = n
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	if err := pprof.StartCPUProfile(w); err != nil {
		http.Error(w, "a CPU profile is in progress: try again later", http.StatusConflict)
		return
	}
	defer pprof.StopCPUProfile()
	timer := time.NewTimer(time.Duration(seconds) * time.Second)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
	}
}
