package agent

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/programs"
)

func TestAgentIsNotReadyBeforeItHasPolledItsGates(t *testing.T) {
	netnstest.Require(t)
	var asked atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	t.Cleanup(s.Close)
	l := newLabWith(t, programs.Build(t), node.Options{ReadinessGates: []string{s.URL}})
	if asked.Load() == 0 {
		t.Error("the agent is ready although it has not polled its gates")
	}
	if status, err := l.Weftctl(t.Context(), "status"); err != nil || !strings.Contains(status, health.Gates) {
		t.Errorf("status %s, %v", status, err)
	}
	l.cni("ADD", l.pod("one"), nil)
	if err := l.StopAgent(); err != nil {
		t.Fatal(err)
	}
	started := l.startHere(func(*Agent) {}) // which has not polled a gate yet
	if err := started.health.Missing(); err == nil || !strings.Contains(err.Error(), health.Gates) {
		t.Errorf("an agent that has started and polled no gate waits for: %v", err)
	}
}
