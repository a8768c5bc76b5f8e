package tracing

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// ValidateEndpoint rejects a URL that is not one of an OTLP receiver.
func ValidateEndpoint(endpoint string) error {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" ||
		u.Fragment != "" {
		if at := strings.LastIndexByte(endpoint, '@'); at >= 0 {
			endpoint = "xxxxx" + endpoint[at:] // there may be a password before it
		}
		return fmt.Errorf(
			"%q must be a URL, such as http://collector:4317, or https://collector:4317 with TLS; credentials belong into OTEL_EXPORTER_OTLP_HEADERS",
			endpoint)
	}
	return nil
}

// newExporter returns an exporter, which connects at its first export. It honours the environment variables
// OTEL_EXPORTER_OTLP_HEADERS and OTEL_EXPORTER_OTLP_CERTIFICATE.
func newExporter(ctx context.Context, c Config) (sdk.SpanExporter, error) {
	if c.Protocol == HTTP {
		options := []otlptracehttp.Option{
			otlptracehttp.WithEndpointURL(c.Endpoint), otlptracehttp.WithTimeout(exportLimit),
		}
		if u, err := url.Parse(c.Endpoint); err == nil && strings.Trim(u.Path, "/") == "" {
			options = append(options, otlptracehttp.WithURLPath("/v1/traces"))
		}
		return otlptracehttp.New(ctx, options...)
	}
	return otlptracegrpc.New(ctx, otlptracegrpc.WithEndpointURL(c.Endpoint), otlptracegrpc.WithTimeout(exportLimit))
}
