package metrics

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Results of a reconciliation.
const (
	Succeeded = "ok"
	Failed    = "error"
)

// Controller are the metrics of one replica of the controller. Its methods are safe for concurrent use.
type Controller struct {
	handler http.Handler
	kinds   *values

	leading    prometheus.Gauge
	elections  prometheus.Counter
	reconciles *prometheus.HistogramVec
	freed      *prometheus.CounterVec
	vnis       prometheus.Gauge
	endpoints  prometheus.Gauge
}

// NewController returns metrics with their own registry.
func NewController(version string, log *slog.Logger) *Controller {
	c := &Controller{
		kinds:   newValues(maxKinds),
		leading: gauge("controller_leader", "Whether this replica leads, 1 or 0."),
		elections: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: prefix,
			Name:      "controller_elections_total",
			Help:      "Times that this replica became the leader.",
		}),
		reconciles: histograms("controller_reconcile_duration_seconds", "Duration of reconciliations.", coarseBuckets,
			"kind", "result"),
		freed: counters("controller_freed_total",
			"Blocks and loans of deleted nodes that the controller freed.", "what"),
		vnis: gauge("controller_vnis", "VNIs that the controller assigned; 0 on a replica that does not lead."),
		endpoints: gauge("controller_endpoints",
			"Addresses in the EndpointSlices that the controller keeps; 0 on a replica that does not lead."),
	}
	registry := newRegistry(version)
	registry.MustRegister(c.leading, c.elections, c.reconciles, c.freed, c.vnis, c.endpoints)
	for _, what := range []string{FreedBlock, FreedLoan} {
		c.freed.WithLabelValues(what)
	}
	c.handler = promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		MaxRequestsInFlight: maxScrapes, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	})
	return c
}

// What the controller frees.
const (
	FreedBlock = "block"
	FreedLoan  = "loan"
)

// ServeHTTP answers a scrape, or responds with 503 during maxScrapes other scrapes.
func (c *Controller) ServeHTTP(w http.ResponseWriter, r *http.Request) { c.handler.ServeHTTP(w, r) }

// Leads says whether this replica leads. What only the leader knows is 0 otherwise.
func (c *Controller) Leads(leads bool) {
	c.leading.Set(oneIf(leads))
	if leads {
		c.elections.Inc()
		return
	}
	c.vnis.Set(0)
	c.endpoints.Set(0)
}

// Reconciled observes a reconciliation of the objects of a kind.
func (c *Controller) Reconciled(kind string, took time.Duration, err error) {
	result := Succeeded
	if err != nil {
		result = Failed
	}
	c.reconciles.WithLabelValues(c.kinds.of(kind), result).Observe(took.Seconds())
}

// Freed counts freed blocks and loans.
func (c *Controller) Freed(blocks, loans int) {
	c.freed.WithLabelValues(FreedBlock).Add(float64(blocks))
	c.freed.WithLabelValues(FreedLoan).Add(float64(loans))
}

// VNIs sets the number of assigned VNIs.
func (c *Controller) VNIs(n int) { c.vnis.Set(float64(n)) }

// Endpoints sets the number of addresses in EndpointSlices.
func (c *Controller) Endpoints(n int) { c.endpoints.Set(float64(n)) }

func gauge(name, help string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: prefix, Name: name, Help: help})
}
