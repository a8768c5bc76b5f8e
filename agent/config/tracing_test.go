package config

import (
	"math"
	"strings"
	"testing"
)

func TestTracingIsValidated(t *testing.T) {
	for _, tt := range []struct {
		tracing Tracing
		err     string
	}{
		{Tracing{"", "grpc", 1}, ""},
		{Tracing{"http://127.0.0.1:4317", "grpc", 0}, ""},
		{Tracing{"https://collector/v1/traces", "http", .5}, ""},
		{
			Tracing{"127.0.0.1:4317", "grpc", 1},
			`tracing.endpoint: "127.0.0.1:4317" must be a URL, such as http://collector:4317`,
		},
		{Tracing{"unix:///run/otel", "grpc", 1}, "must be a URL"},
		{Tracing{"http://user:secret@h", "grpc", 1}, `"xxxxx@h" must be`},
		{Tracing{"http://user:secret%@h", "grpc", 1}, `"xxxxx@h" must be`},
		{Tracing{"http://h", "zipkin", 1}, "tracing.protocol"},
		{Tracing{"http://h", "grpc", 1.5}, "tracing.sampling"},
		{Tracing{"http://h", "grpc", math.NaN()}, "tracing.sampling"},
	} {
		err := tt.tracing.validate()
		if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
			t.Errorf("%+v: %v", tt.tracing, err)
		}
	}
}
