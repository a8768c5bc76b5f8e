package metrics

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// newRegistry returns a registry with the metrics that each program has: metrics of the Go runtime, of the process, and
// weft_build_info.
func newRegistry(version string) *prometheus.Registry {
	registry := prometheus.NewRegistry()
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: prefix, Name: "build_info", Help: "The version of the program; the value is always 1.",
		ConstLabels: prometheus.Labels{"version": valid(version), "goversion": runtime.Version()},
	})
	build.Set(1)
	registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), build)
	return registry
}
