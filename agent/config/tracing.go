package config

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/weftnet/weft/agent/tracing"
)

// Tracing configures OpenTelemetry spans.
type Tracing struct {
	Endpoint string // URL of an OTLP receiver; "": no spans
	Protocol string
	Sampling float64
}

func (t *Tracing) flags(fs *pflag.FlagSet) {
	fs.StringVar(&t.Endpoint, "tracing-endpoint", "",
		"URL of an OTLP receiver for spans, such as http://127.0.0.1:4317; empty: none")
	fs.StringVar(&t.Protocol, "tracing-protocol", tracing.GRPC, "protocol of the OTLP receiver: grpc or http")
	fs.Float64Var(&t.Sampling, "tracing-sampling", 1,
		"part of the traces that begin at the agent, 0 to 1; the runtime decides about its own")
}

func (t *Tracing) validate() error {
	errs := []error{
		oneOf("tracing.protocol", t.Protocol, tracing.GRPC, tracing.HTTP),
		between("tracing.sampling", t.Sampling, 0, 1),
	}
	if t.Sampling != t.Sampling { //nolint:gocritic // NaN
		errs = append(errs, fmt.Errorf("tracing.sampling: %v is not within 0 to 1", t.Sampling))
	}
	if t.Endpoint != "" {
		if err := tracing.ValidateEndpoint(t.Endpoint); err != nil {
			errs = append(errs, fmt.Errorf("tracing.endpoint: %w", err))
		}
	}
	return errors.Join(errs...)
}
