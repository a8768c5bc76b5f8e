// Package metrics serves Prometheus metrics, of an agent or of the controller, with a bound of series for each metric.
package metrics

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// prefix is the first part of all metric names.
const prefix = "weft"

// Limits of scrapes.
const (
	readLimit  = 2 * time.Second // for Config.Read, which may query the dataplane
	maxScrapes = 4               // concurrent
)

// Config configures Metrics.
type Config struct {
	Version string                      // of the program
	Kinds   []string                    // kinds of objects, whose drift counters exist from the start
	Read    func(context.Context) State // reads the state at a scrape; it must return soon after the context ends
	Log     *slog.Logger
}

// Metrics are the metrics of one agent. Its methods are safe for concurrent use. The observing methods do not block.
type Metrics struct {
	config   Config
	registry *prometheus.Registry
	slots    chan struct{}
	labels   labels

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
	spans      *prometheus.CounterVec
}

// labels are the admitted values of the labels that the observing methods set.
type labels struct{ verbs, codes, events, phases, handlers, kinds, operations, results *values }

func newLabels() labels {
	return labels{
		verbs:      newValues(maxVerbs),
		codes:      newValues(maxCodes),
		events:     newValues(maxEvents),
		phases:     newValues(maxPhases),
		handlers:   newValues(maxHandlers),
		kinds:      newValues(maxKinds),
		operations: newValues(maxVerbs),
		results:    newValues(maxResults),
	}
}

// Results of a rollback.
const (
	RolledBack         = "undone"     // all operations are undone
	RollbackIncomplete = "incomplete" // some operations are not undone and will be retried
)

// Buckets of histograms, in seconds.
var (
	fineBuckets   = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}
	coarseBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
)

// New returns metrics with their own registry.
func New(config Config) *Metrics {
	m := &Metrics{
		config:   config,
		registry: newRegistry(config.Version),
		slots:    make(chan struct{}, maxScrapes),
		labels:   newLabels(),

		requests: histograms("cni_request_duration_seconds", "Duration of requests of the CNI plugin.", coarseBuckets,
			"verb", "code"),
		events: histograms("event_duration_seconds",
			"Duration of the phases of events; phase total is from start to end.", fineBuckets, "event", "phase"),
		handlers: histograms("event_handler_duration_seconds", "Duration of the handlers of events.", fineBuckets,
			"event", "handler"),
		queueWait: histogram("event_queue_wait_seconds", "Time that events spent in the queue.", fineBuckets),

		operations: counters("transaction_operations_total", "Operations on objects.", "kind", "verb", "result"),
		rollbacks:  counters("transaction_rollbacks_total", "Failed transactions that were undone.", "result"),
		drift:      counters("drift_total", "Objects that another program changed or deleted.", "kind"),

		reconnects: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: prefix, Name: "dataplane_reconnects_total", Help: "Reconnections to the dataplane."}),
		replay: histogram("dataplane_replay_seconds", "Duration of replays to a reconnected dataplane.", coarseBuckets),
		spans: counters("trace_spans_total",
			"Spans that were exported or not; result dropped counts records without spans.", "result"),
		commit: histogram("state_commit_seconds", "Duration of durable writes of the state file.", fineBuckets),
	}
	m.registry.MustRegister(m.requests, m.events, m.handlers, m.queueWait, m.operations, m.rollbacks, m.drift,
		m.reconnects, m.replay, m.commit, m.spans)
	for _, kind := range config.Kinds {
		m.drift.WithLabelValues(m.labels.kinds.of(kind))
	}
	for _, result := range []string{RolledBack, RollbackIncomplete} {
		m.rollbacks.WithLabelValues(m.labels.results.of(result))
	}
	return m
}

// ServeHTTP answers a scrape, or responds with 503 during maxScrapes other scrapes.
func (m *Metrics) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case m.slots <- struct{}{}:
		defer func() { <-m.slots }()
	default:
		http.Error(w, "too many concurrent scrapes", http.StatusServiceUnavailable)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), readLimit)
	defer cancel()
	current := prometheus.NewRegistry()
	current.MustRegister(reading{m.config.Read(ctx)})
	promhttp.HandlerFor(prometheus.Gatherers{m.registry, current}, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError,
		ErrorLog:      slog.NewLogLogger(m.config.Log.Handler(), slog.LevelWarn),
	}).ServeHTTP(w, r)
}

// Request observes a request of the CNI plugin. code is the CNI error code, "0" for success, or the name of a gRPC code
// if the call failed.
func (m *Metrics) Request(verb, code string, took time.Duration) {
	m.requests.WithLabelValues(m.labels.verbs.of(verb), m.labels.codes.of(code)).Observe(took.Seconds())
}

// Event is a handled event. Name is the name of its type.
type Event struct {
	Name     string
	Waited   time.Duration
	Phases   map[string]time.Duration
	Handlers map[string]time.Duration
}

// Event observes a handled event.
func (m *Metrics) Event(e Event) {
	m.queueWait.Observe(e.Waited.Seconds())
	name := m.labels.events.of(e.Name)
	for phase, took := range e.Phases {
		m.events.WithLabelValues(name, m.labels.phases.of(phase)).Observe(took.Seconds())
	}
	for handler, took := range e.Handlers {
		m.handlers.WithLabelValues(name, m.labels.handlers.of(handler)).Observe(took.Seconds())
	}
}

// Operation counts an operation on an object of a kind.
func (m *Metrics) Operation(kind, verb, result string) {
	m.operations.WithLabelValues(m.labels.kinds.of(kind), m.labels.operations.of(verb),
		m.labels.results.of(result)).Inc()
}

// Rollback counts an undone transaction.
func (m *Metrics) Rollback(result string) {
	m.rollbacks.WithLabelValues(m.labels.results.of(result)).Inc()
}

// Drift counts an object that another program changed or deleted.
func (m *Metrics) Drift(kind string) { m.drift.WithLabelValues(m.labels.kinds.of(kind)).Inc() }

// Reconnected counts a reconnection to the dataplane.
func (m *Metrics) Reconnected() { m.reconnects.Inc() }

// Replayed observes a replay to a reconnected dataplane.
func (m *Metrics) Replayed(took time.Duration) { m.replay.Observe(took.Seconds()) }

// Spans counts spans of traces by result.
func (m *Metrics) Spans(result string, n int) {
	m.spans.WithLabelValues(m.labels.results.of(result)).Add(float64(n))
}

// Committed observes a durable write of the state file.
func (m *Metrics) Committed(took time.Duration) { m.commit.Observe(took.Seconds()) }

func histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(
		prometheus.HistogramOpts{Namespace: prefix, Name: name, Help: help, Buckets: buckets}, labels)
}

func histogram(name, help string, buckets []float64) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: prefix,
		Name:      name,
		Help:      help,
		Buckets:   buckets,
	})
}

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: prefix, Name: name, Help: help}, labels)
}
