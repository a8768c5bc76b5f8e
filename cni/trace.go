package cni

import (
	"context"
	"os"
	"strings"

	"google.golang.org/grpc/metadata"
)

// withTrace returns a context with the runtime's trace for the agent, which makes the spans. The runtime passes the
// headers of W3C Trace Context in environment variables. Invalid headers are ignored: they must not fail a pod.
func withTrace(ctx context.Context) context.Context {
	parent := os.Getenv("TRACEPARENT")
	state := os.Getenv("TRACESTATE")
	if !isTraceParent(parent) {
		return ctx
	}
	ctx = metadata.AppendToOutgoingContext(ctx, "traceparent", parent)
	if isTraceState(state) {
		ctx = metadata.AppendToOutgoingContext(ctx, "tracestate", state)
	}
	return ctx
}

// isTraceParent reports whether a header is VERSION-TRACE-SPAN-FLAGS, of 2, 32, 16 and 2 lower-case hexadecimal digits.
func isTraceParent(header string) bool {
	parts := strings.Split(header, "-")
	if len(parts) != 4 {
		return false
	}
	for i, digits := range []int{2, 32, 16, 2} {
		if len(parts[i]) != digits || strings.Trim(parts[i], "0123456789abcdef") != "" {
			return false
		}
	}
	return true
}

// isTraceState reports whether gRPC accepts a header: printable ASCII.
func isTraceState(header string) bool {
	return header != "" && len(header) <= 512 &&
		!strings.ContainsFunc(header, func(r rune) bool { return r < ' ' || r > '~' })
}
