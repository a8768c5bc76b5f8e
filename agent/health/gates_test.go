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

// gate is a URL of which a test says what it answers.
func gate(t *testing.T, status int) (at string, answers *atomic.Int64) {
	t.Helper()
	answers = new(atomic.Int64)
	answers.Store(int64(status))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "/open")
		if r.URL.Path == "/open" {
			return
		}
		w.WriteHeader(int(answers.Load()))
	}))
	t.Cleanup(s.Close)
	return s.URL + "/ready", answers
}

// readyBut is the health of an agent that waits for its gates only; changes are told by the channel.
func readyBut(t *testing.T) (*Conditions, <-chan bool) {
	t.Helper()
	h := New("", slog.New(slog.DiscardHandler))
	h.Require(Gates, "no gate was polled yet")
	h.Set(Started, true, "")
	h.Set(Dataplane, true, "")
	changes := make(chan bool, 16)
	h.Watch(Gates, func(ok bool) { changes <- ok })
	return h, changes
}

// The agent is ready once all gates are open, and only while they are.
//
// rows: CAL-29
func TestPodsAreServedWhileAllGatesAreOpen(t *testing.T) {
	one, oneAnswers := gate(t, http.StatusOK)
	other, otherAnswers := gate(t, http.StatusServiceUnavailable)
	h, changes := readyBut(t)
	if err := h.Missing(); err == nil || !strings.Contains(err.Error(), "gates: no gate was polled yet") {
		t.Errorf("before the first look: %v", err)
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
			t.Fatalf("nothing changed: %v", h.Missing())
		}
	}
	otherAnswers.Store(http.StatusNoContent)
	next(true)
	oneAnswers.Store(http.StatusFound)
	next(false)
	if err := h.Missing(); err == nil || !strings.Contains(err.Error(), "gates: "+one+" answers 302 Found") {
		t.Errorf("one is closed again: %v", err)
	}
	oneAnswers.Store(http.StatusOK)
	next(true)
}

func TestAGateThatRefusesConnectionsIsClosed(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	open, _ := gate(t, http.StatusOK)
	s.Close()
	h, _ := readyBut(t)
	err := NewGates([]string{s.URL, open, s.URL}, h, time.Hour).poll(t.Context())
	if err == nil || strings.Count(err.Error(), s.URL) != 2 || strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), open) {
		t.Errorf("got %v", err)
	}
}
