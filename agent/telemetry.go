package agent

import (
	"context"
	"log/slog"

	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/agent/measure"
	"github.com/weftnet/weft/agent/operations"
	"github.com/weftnet/weft/agent/southbound"
	"github.com/weftnet/weft/agent/tracing"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/internal/version"
	"github.com/weftnet/weft/metrics"
	"github.com/weftnet/weft/wire"
)

// telemetry measures the agent: metrics, spans and the level of its log.
type telemetry struct {
	metrics  *metrics.Metrics
	source   measure.Source  // of metrics that are read
	tracer   *tracing.Tracer // nil: no spans
	counters *southbound.Counters
	logLevel *operations.LogLevel
}

func newTelemetry(ctx context.Context, c config.Config, log *slog.Logger) (*telemetry, error) {
	t := &telemetry{logLevel: operations.NewLogLevel(c.Log.Level)}
	t.metrics = metrics.New(metrics.Config{
		Version: version.String(),
		Kinds:   wire.Kinds(),
		Read:    func(ctx context.Context) metrics.State { return t.source.Read(ctx) },
		Log:     log.With("component", "metrics"),
	})
	of := c.Tracing
	if of.Endpoint == "" {
		return t, nil
	}
	var err error
	t.tracer, err = tracing.New(ctx, tracing.Config{
		Endpoint: of.Endpoint,
		Protocol: of.Protocol,
		Sampling: of.Sampling,
		Version:  version.String(),
		Node:     c.Kubernetes.Node,
		Count:    t.metrics.Spans,
		Log:      log.With("component", "tracing"),
	})
	return t, err
}

// onEvent observes a handled event.
func (t *telemetry) onEvent(ctx context.Context, r eventloop.Record) {
	t.recorder().Event(r)
	t.tracer.Event(ctx, r)
}

func (t *telemetry) recorder() measure.Recorder { return measure.Recorder{Metrics: t.metrics} }
