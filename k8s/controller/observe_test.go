package controller

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/metrics"
)

// scrapeOf returns the metrics of a replica.
func scrapeOf(t *testing.T, m *metrics.Controller) string {
	t.Helper()
	answer := httptest.NewRecorder()
	m.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	return answer.Body.String()
}

func TestMetricsShowTheWorkOfTheLeader(t *testing.T) {
	l := newLab(t)
	measured := metrics.NewController("weft v1", slog.New(slog.DiscardHandler))
	observed := func(c *Config) {
		c.Observer = measured
		c.Metrics = measured
	}
	c := l.replica("a", observed)
	stop := l.start("a", c.Run)
	l.network("blue", nil)
	l.network("green", func(s *v1.CustomNetworkSpec) { s.VNI = new(int32(7)) }) // chosen by its user
	has := func(line string) {
		t.Helper()
		l.eventually(line, func() bool { return strings.Contains(scrapeOf(t, measured), line) })
	}
	has("weft_controller_leader 1\n")
	has("weft_controller_elections_total 1\n")
	has("weft_controller_vnis 1\n")
	has(`weft_controller_reconcile_duration_seconds_count{kind="CustomNetwork",result="ok"}`)
	l.Fail(func(r *http.Request) int {
		if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/status") {
			return http.StatusInternalServerError
		}
		return 0
	})
	l.network("red", nil)
	has(`weft_controller_reconcile_duration_seconds_count{kind="CustomNetwork",result="error"}`)
	stop()
	has("weft_controller_leader 0\n")
	has("weft_controller_vnis 0\n")
}

func TestFreedBlocksAndLoansAreCounted(t *testing.T) {
	measured := metrics.NewController("weft v1", slog.New(slog.DiscardHandler))
	o := observation{measured}
	o.collected([]string{"block b1 of node n", "address 10.0.0.1 lent to node n", "address 10.0.0.2 lent to node n"})
	for _, line := range []string{
		`weft_controller_freed_total{what="block"} 1`, `weft_controller_freed_total{what="loan"} 2`,
	} {
		if !strings.Contains(scrapeOf(t, measured), line) {
			t.Errorf("%s is missing", line)
		}
	}
	if err := o.reconciled("IPPool", func() error { return context.Canceled }); err != context.Canceled { //nolint:errorlint // the same error
		t.Error(err)
	}
}
