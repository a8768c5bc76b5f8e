package cni

import (
	"context"
	"os"
	"regexp"

	"google.golang.org/grpc/metadata"
)

// Headers of a trace in the form of W3C Trace Context. A runtime passes them in environment variables.
var (
	traceParent = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)
	traceState  = regexp.MustCompile(`^[ -~]{1,512}$`)
)

// withTrace returns a context with the runtime's trace for the agent, which makes the spans. Invalid headers are ignored: they must not
// fail a pod.
func withTrace(ctx context.Context) context.Context {
	parent, state := os.Getenv("TRACEPARENT"), os.Getenv("TRACESTATE")
	if !traceParent.MatchString(parent) {
		return ctx
	}
	ctx = metadata.AppendToOutgoingContext(ctx, "traceparent", parent)
	if traceState.MatchString(state) {
		ctx = metadata.AppendToOutgoingContext(ctx, "tracestate", state)
	}
	return ctx
}
