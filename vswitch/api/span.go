package api

import (
	"go.fd.io/govpp/binapi/span"

	"github.com/weftnet/weft/vswitch/model"
)

// spanHandlers serve mirrors of interfaces. Mirrors at layer 2, inside a bridge domain, are not supported.
var spanHandlers = []handler{
	set[span.SwInterfaceSpanEnableDisableReply](func(m *model.Model, r *span.SwInterfaceSpanEnableDisable) error {
		if r.IsL2 {
			return model.Unimplemented
		}
		return m.Spans.Set(model.Span{
			From:  uint32(r.SwIfIndexFrom),
			To:    uint32(r.SwIfIndexTo),
			State: model.SpanState(r.State),
		})
	}),
	dump(func(m *model.Model, r *span.SwInterfaceSpanDump) ([]model.Span, error) {
		if r.IsL2 {
			return nil, nil
		}
		return m.Spans.List(), nil
	}, func(_ *span.SwInterfaceSpanDump, s model.Span) span.SwInterfaceSpanDetails {
		return span.SwInterfaceSpanDetails{
			SwIfIndexFrom: swIfIndex(s.From),
			SwIfIndexTo:   swIfIndex(s.To),
			State:         span.SpanState(s.State),
		}
	}),
}
