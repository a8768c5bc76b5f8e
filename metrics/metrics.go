package metrics

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// prefix is that of all names.
const prefix = "weft"

// Bounds of one scrape.
const (
	readLimit   = 2 * time.Second // for what is asked for at a scrape, as of the dataplane
	mostScrapes = 4               // at once
)

// Config is what Metrics are made of.
type Config struct {
	Kinds []string                    // of objects, whose counters are there from the beginning
	Read  func(context.Context) State // asks for what is as it is at a scrape; it returns soon after the context ends
	Log   *slog.Logger
}

// Metrics are those of one agent. The observing methods may be called from anywhere and never wait.
type Metrics struct {
	config   Config
	registry *prometheus.Registry
	slots    chan struct{}

	requests   *prometheus.HistogramVec
	events     *prometheus.HistogramVec
	handlers   *prometheus.HistogramVec
	queueWait  prometheus.Histogram
	operations *prometheus.CounterVec
	rollbacks  *prometheus.CounterVec
	drift      *prometheus.CounterVec
	reconnects prometheus.Counter
	replay     prometheus.Histogram
	commit     prometheus.Histogram
}

// Buckets of histograms, in seconds.
var (
	fineBuckets   = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}
	coarseBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
)

// New makes metrics in a registry of their own.
func New(config Config) *Metrics {
	m := &Metrics{
		config:   config,
		registry: prometheus.NewRegistry(),
		slots:    make(chan struct{}, mostScrapes),

		requests:  histograms("cni_request_duration_seconds", "Time that a request of the CNI plugin took.", coarseBuckets, "verb", "code"),
		events:    histograms("event_duration_seconds", "Time that a phase of an event took; total is from its start to its end.", fineBuckets, "event", "phase"),
		handlers:  histograms("event_handler_duration_seconds", "Time that one handler took of an event.", fineBuckets, "event", "handler"),
		queueWait: histogram("event_queue_wait_seconds", "Time that an event waited before it was handled.", fineBuckets),

		operations: counters("transaction_operations_total", "Operations on objects of the machine.", "kind", "verb", "result"),
		rollbacks:  counters("transaction_rollbacks_total", "Transactions that failed and were taken back.", "result"),
		drift:      counters("drift_total", "Objects that were found other than they had been left.", "kind"),

		reconnects: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: prefix, Name: "dataplane_reconnects_total", Help: "Connections to the dataplane after the first one."}),
		replay: histogram("dataplane_replay_seconds", "Time to bring a dataplane that was connected again to what is desired.", coarseBuckets),
		commit: histogram("state_commit_seconds", "Time of one durable write of the state file.", fineBuckets),
	}
	m.registry.MustRegister(m.requests, m.events, m.handlers, m.queueWait, m.operations, m.rollbacks, m.drift, m.reconnects, m.replay, m.commit)
	for _, kind := range config.Kinds {
		m.drift.WithLabelValues(kind)
	}
	for _, result := range []string{RolledBack, RollbackIncomplete} {
		m.rollbacks.WithLabelValues(result)
	}
	return m
}

// ServeHTTP answers one scrape. While too many are under way it refuses.
func (m *Metrics) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case m.slots <- struct{}{}:
		defer func() { <-m.slots }()
	default:
		http.Error(w, "too many scrapes at once", http.StatusServiceUnavailable)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), readLimit)
	defer cancel()
	now := prometheus.NewRegistry()
	now.MustRegister(reading{m.config.Read(ctx)})
	promhttp.HandlerFor(prometheus.Gatherers{m.registry, now}, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError,
		ErrorLog:      slog.NewLogLogger(m.config.Log.Handler(), slog.LevelWarn),
	}).ServeHTTP(w, r)
}

func histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: prefix, Name: name, Help: help, Buckets: buckets}, labels)
}

func histogram(name, help string, buckets []float64) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: prefix, Name: name, Help: help, Buckets: buckets})
}

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: prefix, Name: name, Help: help}, labels)
}
