package api

import (
	"go.fd.io/govpp/binapi/tracedump"
	"go.fd.io/govpp/binapi/vlib"

	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/model"
)

// tracedPath is a path in trace_v2_details.
type tracedPath struct {
	worker, position int
	more             bool
	text             string
}

// traceHandlers serve traces of packets. The paths of a worker keep their positions until the trace is cleared, so that
// clients need no cache: clear_cache and trace_clear_cache do nothing.
var traceHandlers = []handler{
	call(func(_ *model.Model, r *vlib.GetNodeIndex) (*vlib.GetNodeIndexReply, error) {
		index, err := model.InputNodeIndex(r.NodeName)
		return &vlib.GetNodeIndexReply{NodeIndex: index}, err
	}),
	set[tracedump.TraceCapturePacketsReply](func(m *model.Model, r *tracedump.TraceCapturePackets) error {
		if r.UseFilter {
			return model.Unsupported
		}
		if r.PreCaptureClear {
			m.Traces.Clear()
		}
		return m.Traces.Start(r.NodeIndex, int(min(r.MaxPackets, forward.MaxTraced)))
	}),
	set[tracedump.TraceClearCaptureReply](func(m *model.Model, _ *tracedump.TraceClearCapture) error {
		m.Traces.Clear()
		return nil
	}),
	set[tracedump.TraceClearCacheReply](func(*model.Model, *tracedump.TraceClearCache) error { return nil }),
	dump(func(m *model.Model, r *tracedump.TraceV2Dump) ([]tracedPath, error) { return tracedPaths(m, r), nil },
		func(_ *tracedump.TraceV2Dump, p tracedPath) tracedump.TraceV2Details {
			return tracedump.TraceV2Details{
				ThreadID:  uint32(p.worker),
				Position:  uint32(p.position),
				More:      p.more,
				TraceData: p.text,
			}
		}),
}

// tracedPaths returns at most r.Max paths of a worker, or of each.
func tracedPaths(m *model.Model, r *tracedump.TraceV2Dump) (found []tracedPath) {
	if r.Position == model.NoIndex {
		return nil // clears the cache only
	}
	for worker, paths := range m.Traces.Paths() {
		if r.ThreadID != model.NoIndex && r.ThreadID != uint32(worker) {
			continue
		}
		for n := int(r.Position); n < len(paths) && n-int(r.Position) < int(r.Max); n++ {
			found = append(found, tracedPath{worker: worker, position: n, more: n < len(paths)-1, text: paths[n]})
		}
	}
	return found
}
