package southbound

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/dataplane/vpp"
)

func TestMissingStatsSocketIsSaidOnceAndIsNoReasonForUnreadiness(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	h := health.New("", slog.New(slog.DiscardHandler))
	h.Set(health.Started, true, "")
	h.Set(health.Dataplane, true, "")
	s := &Dataplane{Client: vpp.New(filepath.Join(t.TempDir(), "api.sock"), vpp.Options{})}
	s.up.Store(true)
	c := NewCounters(s, h, log)
	for range 3 {
		err := s.Client.Statistics().Check(t.Context())
		if !errors.Is(err, vpp.ErrStats) || !errors.Is(err, unix.ENOENT) {
			t.Fatal(err)
		}
		c.judgeLocked(t.Context(), err)
	}
	if n := strings.Count(out.String(), "\n"); n != 1 || !strings.Contains(out.String(), "stats.sock") {
		t.Errorf("%d lines: %s", n, out.String())
	}
	if ready, _ := h.Snapshot(); !ready || h.Holds(health.Stats) || h.Requires(health.Stats) {
		t.Errorf("ready %t, stats %t, required %t", ready, h.Holds(health.Stats), h.Requires(health.Stats))
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	c.judgeLocked(t.Context(), nil)
	c.judgeLocked(gone, fmt.Errorf("%w: %w", vpp.ErrStats, context.Canceled))
	c.judgeLocked(t.Context(), errors.New("no answer from the API"))
	if !h.Holds(health.Stats) {
		t.Error("a caller that gave up, or another error, is taken for a missing stats segment")
	}
}
