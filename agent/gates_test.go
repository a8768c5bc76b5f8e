package agent

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

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/programs"
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
func readyBut(t *testing.T) (*health, <-chan bool) {
	t.Helper()
	h := newHealth("", slog.New(slog.DiscardHandler))
	h.require(conditionGates, "none was asked yet")
	h.set(conditionStarted, true, "")
	h.set(conditionDataplane, true, "")
	changes := make(chan bool, 16)
	h.watch(conditionGates, func(ok bool) { changes <- ok })
	return h, changes
}

// The agent is ready once all gates are open, and only while they are.
//
// rows: CAL-29
func TestPodsAreServedWhileAllGatesAreOpen(t *testing.T) {
	one, oneAnswers := gate(t, http.StatusOK)
	other, otherAnswers := gate(t, http.StatusServiceUnavailable)
	h, changes := readyBut(t)
	if err := h.missing(); err == nil || !strings.Contains(err.Error(), "gates: none was asked yet") {
		t.Errorf("before the first look: %v", err)
	}
	g := newGates([]string{one, other}, h, 10*time.Millisecond)
	if err := g.look(t.Context()); err == nil || err.Error() != other+" answers 503 Service Unavailable" {
		t.Errorf("one is closed: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- g.run(ctx) }()
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
			if ready, _ := h.snapshot(); got != want || ready != want {
				t.Errorf("gates open: %v, ready: %v, want %v", got, ready, want)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("nothing changed: %v", h.missing())
		}
	}
	otherAnswers.Store(http.StatusNoContent)
	next(true)
	oneAnswers.Store(http.StatusFound)
	next(false)
	if err := h.missing(); err == nil || !strings.Contains(err.Error(), "gates: "+one+" answers 302 Found") {
		t.Errorf("one is closed again: %v", err)
	}
	oneAnswers.Store(http.StatusOK)
	next(true)
}

// rows: CAL-29
func TestAnAgentIsNotReadyBeforeItAskedItsGates(t *testing.T) {
	netnstest.Require(t)
	var asked atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	t.Cleanup(s.Close)
	l := newLabWith(t, programs.Build(t), node.Options{ReadinessGates: []string{s.URL}})
	if asked.Load() == 0 {
		t.Error("the agent is ready, and has not asked")
	}
	if status, err := l.Weftctl(t.Context(), "status"); err != nil || !strings.Contains(status, conditionGates) {
		t.Errorf("status %s, %v", status, err)
	}
	l.cni("ADD", l.pod("one"), nil)
	if err := l.StopAgent(); err != nil {
		t.Fatal(err)
	}
	started := l.startHere(func(*Agent) {}) // which asks no gate yet
	if err := started.health.missing(); err == nil || !strings.Contains(err.Error(), conditionGates) {
		t.Errorf("an agent that has started and asked no gate waits for: %v", err)
	}
}

func TestAGateWhereNobodyIsIsClosed(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	open, _ := gate(t, http.StatusOK)
	s.Close()
	h, _ := readyBut(t)
	err := newGates([]string{s.URL, open, s.URL}, h, time.Hour).look(t.Context())
	if err == nil || strings.Count(err.Error(), s.URL) != 2 || strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), open) {
		t.Errorf("got %v", err)
	}
}
