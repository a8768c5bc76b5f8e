package health

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// gate serves a URL with a status that the test can change.
func gate(t *testing.T, initial int) (at string, status *atomic.Int64) {
	t.Helper()
	status = new(atomic.Int64)
	status.Store(int64(initial))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "/open")
		if r.URL.Path == "/open" {
			return
		}
		w.WriteHeader(int(status.Load()))
	}))
	t.Cleanup(s.Close)
	return s.URL + "/ready", status
}

// onlyGates returns the conditions of an agent that is ready except for its gates, and the changes of that condition.
func onlyGates(t *testing.T) (*Conditions, <-chan bool) {
	t.Helper()
	h := New("", slog.New(slog.DiscardHandler))
	h.Require(Gates, "not polled yet")
	h.Set(Started, true, "")
	h.Set(Dataplane, true, "")
	changes := make(chan bool, 16)
	h.Watch(Gates, func(ok bool) { changes <- ok })
	return h, changes
}

func TestPodsAreServedWhileAllGatesAreOpen(t *testing.T) {
	one, oneStatus := gate(t, http.StatusOK)
	other, otherStatus := gate(t, http.StatusServiceUnavailable)
	h, changes := onlyGates(t)
	if err := h.Missing(); err == nil || !strings.Contains(err.Error(), "gates: not polled yet") {
		t.Errorf("before the first poll: %v", err)
	}
	g := NewGates([]string{one, other}, h, 10*time.Millisecond)
	if err := g.poll(t.Context()); err == nil || err.Error() != other+" answers 503 Service Unavailable" {
		t.Errorf("one is closed: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("ended with %v", err)
		}
	}()
	next := func(want bool) {
		t.Helper()
		select {
		case got := <-changes:
			if ready, _ := h.Snapshot(); got != want || ready != want {
				t.Errorf("gates open: %v, ready: %v, want %v", got, ready, want)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("no change: %v", h.Missing())
		}
	}
	otherStatus.Store(http.StatusNoContent)
	next(true)
	oneStatus.Store(http.StatusFound)
	next(false)
	if err := h.Missing(); err == nil || !strings.Contains(err.Error(), "gates: "+one+" answers 302 Found") {
		t.Errorf("one is closed again: %v", err)
	}
	oneStatus.Store(http.StatusOK)
	next(true)
}

func TestGateThatRefusesConnectionsIsClosed(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	open, _ := gate(t, http.StatusOK)
	s.Close()
	h, _ := onlyGates(t)
	err := NewGates([]string{s.URL, open, s.URL}, h, time.Hour).poll(t.Context())
	if err == nil || strings.Count(err.Error(), s.URL) != 2 || strings.Contains(err.Error(), "\n") ||
		strings.Contains(err.Error(), open) {
		t.Errorf("got %v", err)
	}
}
