// Package tracingtest is an OTLP receiver for tests.
package tracingtest

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// Receiver keeps the spans that it received.
type Receiver struct {
	collector.UnimplementedTraceServiceServer

	URL string

	mu       sync.Mutex
	spans    []*tracev1.Span
	resource map[string]string
	refuse   error
}

// GRPC returns a receiver of OTLP by gRPC, which serves until the test ends.
func GRPC(t *testing.T) *Receiver {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &Receiver{URL: "http://" + listener.Addr().String()}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, r)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() { server.Stop(); serving.Wait() })
	return r
}

// HTTP returns a receiver of OTLP by HTTP, which serves until the test ends.
func HTTP(t *testing.T) *Receiver {
	t.Helper()
	r := &Receiver{}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/traces", func(w http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		var message collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &message)
		}
		if err == nil {
			_, err = r.Export(q.Context(), &message)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	r.URL = server.URL
	return r
}

// Hanging returns the URL of a receiver that accepts connections and never answers.
func Hanging(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() }) // the kernel completes connections to it
	return "http://" + listener.Addr().String()
}

// Refuse makes exports fail with an error until it is nil.
func (r *Receiver) Refuse(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refuse = err
}

// Export keeps spans.
func (r *Receiver) Export(
	_ context.Context, q *collector.ExportTraceServiceRequest,
) (*collector.ExportTraceServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refuse != nil {
		return nil, r.refuse
	}
	for _, rs := range q.GetResourceSpans() {
		r.resource = map[string]string{}
		for _, a := range rs.GetResource().GetAttributes() {
			r.resource[a.GetKey()] = a.GetValue().GetStringValue()
		}
		for _, scope := range rs.GetScopeSpans() {
			r.spans = append(r.spans, scope.GetSpans()...)
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// Resource returns the attributes of the sender.
func (r *Receiver) Resource() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.resource
}

// Spans returns the spans of a trace in the order of their start; "": of all traces.
func (r *Receiver) Spans(trace string) []*tracev1.Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	var of []*tracev1.Span
	for _, s := range r.spans {
		if trace == "" || hex.EncodeToString(s.GetTraceId()) == trace {
			of = append(of, s)
		}
	}
	slices.SortStableFunc(of, func(a, b *tracev1.Span) int {
		return int(int64(a.GetStartTimeUnixNano()) - int64(b.GetStartTimeUnixNano())) //nolint:gosec // times of one test
	})
	return of
}

// Tree returns the names of a trace's spans, one a line, indented below the parent, with "!" if they failed. The
// children of parent (an ID in hex) are at the left.
func (r *Receiver) Tree(trace, parent string) string {
	var b strings.Builder
	spans := r.Spans(trace)
	writeTree(&b, spans, parent, "")
	return b.String()
}

func writeTree(b *strings.Builder, spans []*tracev1.Span, parent, indent string) {
	for _, s := range spans {
		if hex.EncodeToString(s.GetParentSpanId()) != parent {
			continue
		}
		failed := ""
		if s.GetStatus().GetCode() == tracev1.Status_STATUS_CODE_ERROR {
			failed = " !"
		}
		_, _ = fmt.Fprintf(b, "%s%s%s\n", indent, s.GetName(), failed)
		writeTree(b, spans, hex.EncodeToString(s.GetSpanId()), indent+"  ")
	}
}
