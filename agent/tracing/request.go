package tracing

import (
	"context"
	"crypto/rand"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// request is a handled call of weft-cni.
type request struct {
	method     string
	attachment *weftv1.Attachment
	pod        *weftv1.Pod
	began      time.Time
	ended      time.Time
	err        string
	code       string
}

// Request is an interceptor: the events of a call of weft-cni become parts of the trace that its metadata names, or of
// a new one.
func (t *Tracer) Request(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler,
) (any, error) {
	service := "/" + weftv1.RemoteCNI_ServiceDesc.ServiceName + "/"
	method, ours := strings.CutPrefix(info.FullMethod, service)
	if t == nil || !ours {
		return handle(ctx, req)
	}
	md, _ := metadata.FromIncomingContext(ctx)
	ctx = propagation.TraceContext{}.Extract(ctx, carrier(md))
	parent := trace.SpanContextFromContext(ctx)
	own := t.contextOf(ctx, parent)
	r := &request{method: method, began: time.Now()}
	reply, err := handle(trace.ContextWithSpanContext(ctx, own), req)
	if own.IsSampled() {
		r.ended = time.Now()
		r.describe(req, reply, err)
		t.add(item{parent: parent, own: own, request: r})
	}
	return reply, err
}

// contextOf returns the context of a new span, with the sampler's decision.
func (t *Tracer) contextOf(ctx context.Context, parent trace.SpanContext) trace.SpanContext {
	id := parent.TraceID()
	if !parent.IsValid() {
		_, _ = rand.Read(id[:]) // never fails
	}
	var span trace.SpanID
	_, _ = rand.Read(span[:])
	config := trace.SpanContextConfig{TraceID: id, SpanID: span, TraceState: parent.TraceState()}
	decision := t.sampler.ShouldSample(sdk.SamplingParameters{ParentContext: ctx, TraceID: id}).Decision
	if decision == sdk.RecordAndSample {
		config.TraceFlags = trace.FlagsSampled
	}
	return trace.NewSpanContext(config)
}

// describe keeps what names the request, and its outcome.
func (r *request) describe(req, reply any, err error) {
	if q, ok := req.(interface{ GetAttachment() *weftv1.Attachment }); ok {
		r.attachment = q.GetAttachment()
	}
	if q, ok := req.(interface{ GetPod() *weftv1.Pod }); ok {
		r.pod = q.GetPod()
	}
	if err != nil {
		r.err = status.Convert(err).Message()
		r.code = status.Code(err).String()
		return
	}
	if p, ok := reply.(interface{ GetError() *weftv1.Error }); ok {
		r.err = p.GetError().GetMsg()
		r.code = strconv.FormatUint(uint64(p.GetError().GetCode()), 10)
	}
}

// carrier reads the headers of a trace from gRPC metadata.
type carrier metadata.MD

// Get returns the first value of a header.
func (c carrier) Get(key string) string {
	if v := metadata.MD(c).Get(key); len(v) > 0 {
		return v[0]
	}
	return ""
}

// Set does nothing: a request is only read.
func (carrier) Set(string, string) {}

// Keys returns the names of all headers.
func (c carrier) Keys() []string {
	var keys []string
	for key := range c {
		keys = append(keys, key)
	}
	return keys
}

// generator makes the IDs of spans: random ones, or the ones that a context names.
type generator struct{}

type presetKey struct{}

// withIDs returns a context in which the next span has these IDs.
func withIDs(ctx context.Context, own trace.SpanContext) context.Context {
	return context.WithValue(ctx, presetKey{}, own)
}

// NewIDs returns the IDs of a span without a parent.
func (g generator) NewIDs(ctx context.Context) (id trace.TraceID, span trace.SpanID) {
	if own, preset := ctx.Value(presetKey{}).(trace.SpanContext); preset {
		return own.TraceID(), own.SpanID()
	}
	_, _ = rand.Read(id[:])
	return id, g.NewSpanID(ctx, id)
}

// NewSpanID returns the ID of a span with a parent.
func (generator) NewSpanID(ctx context.Context, _ trace.TraceID) (span trace.SpanID) {
	if own, preset := ctx.Value(presetKey{}).(trace.SpanContext); preset {
		return own.SpanID()
	}
	_, _ = rand.Read(span[:])
	return span
}
