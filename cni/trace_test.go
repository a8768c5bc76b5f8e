package cni

import (
	"testing"

	"google.golang.org/grpc/metadata"
)

func TestHeadersOfATraceArePassedIfTheyAreValid(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, tt := range []struct{ parent, state, passedParent, passedState string }{
		{"", "a=b", "", ""},
		{parent, "", parent, ""},
		{parent, "a=b", parent, "a=b"},
		{parent, "a=\n", parent, ""},
		{parent, "a=é", parent, ""},
		{parent + "\n", "", "", ""},
		{parent + "-more", "a=b", "", ""},
		{"00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "", "", ""},
	} {
		t.Setenv("TRACEPARENT", tt.parent)
		t.Setenv("TRACESTATE", tt.state)
		md, _ := metadata.FromOutgoingContext(withTrace(t.Context()))
		if got := first(md.Get("traceparent")); got != tt.passedParent {
			t.Errorf("%q: traceparent %q", tt.parent, got)
		}
		if got := first(md.Get("tracestate")); got != tt.passedState {
			t.Errorf("%q: tracestate %q", tt.state, got)
		}
	}
}

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}
