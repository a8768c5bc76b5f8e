package api

import (
	"strings"
	"testing"

	"go.fd.io/govpp/api"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/span"
	"go.fd.io/govpp/binapi/tapv2"
	"go.fd.io/govpp/binapi/tracedump"
	"go.fd.io/govpp/binapi/vlib"
)

func (a *testClient) spans(t testingT) []*span.SwInterfaceSpanDetails {
	t.Helper()
	s, err := span.NewServiceClient(a.conn).SwInterfaceSpanDump(a.context, &span.SwInterfaceSpanDump{})
	return collect[*span.SwInterfaceSpanDetails](t, s, err)
}

func TestSpanIsSetReplacedDumpedAndRemoved(t *testing.T) {
	a := newTestClient(t.Context(), start(t, Limits{}).connect(t))
	tap := func(id uint32) interface_types.InterfaceIndex {
		return mustInvoke(t, a, a.taps.TapCreateV3, &tapv2.TapCreateV3{
			ID:           id,
			UseRandomMac: true,
			NumRxQueues:  1,
			NumTxQueues:  1,
		}).SwIfIndex
	}
	one := tap(1)
	two := tap(2)
	three := tap(3)
	loop := mustInvoke(t, a, a.ifs.CreateLoopback, &interfaces.CreateLoopback{}).SwIfIndex
	spans := span.NewServiceClient(a.conn)
	request := func(from, to interface_types.InterfaceIndex, state span.SpanState) *span.SwInterfaceSpanEnableDisable {
		return &span.SwInterfaceSpanEnableDisable{SwIfIndexFrom: from, SwIfIndexTo: to, State: state}
	}
	for _, r := range []*span.SwInterfaceSpanEnableDisable{
		request(one, two, span.SPAN_STATE_API_RX), request(one, two, span.SPAN_STATE_API_RX_TX),
		request(one, three, span.SPAN_STATE_API_TX),
	} {
		mustInvoke(t, a, spans.SwInterfaceSpanEnableDisable, r)
	}
	if all := a.spans(t); len(all) != 2 || all[0].State != span.SPAN_STATE_API_RX_TX || all[1].SwIfIndexTo != three {
		t.Fatalf("%+v", all)
	}
	l2 := request(one, two, span.SPAN_STATE_API_RX)
	l2.IsL2 = true
	checkRefusals(t, map[string]refusal{
		"the same interface": {
			calling(t, a, spans.SwInterfaceSpanEnableDisable, request(one, one, 1)), api.INVALID_INTERFACE,
		},
		"no target": {
			calling(t, a, spans.SwInterfaceSpanEnableDisable, request(one, noInterface, 1)), api.INVALID_INTERFACE,
		},
		"an unknown state": {
			calling(t, a, spans.SwInterfaceSpanEnableDisable, request(one, two, 4)), api.UNIMPLEMENTED,
		},
		"layer 2": {calling(t, a, spans.SwInterfaceSpanEnableDisable, l2), api.UNIMPLEMENTED},
		"an unknown interface": {
			calling(t, a, spans.SwInterfaceSpanEnableDisable, request(4711, two, 1)), api.INVALID_SW_IF_INDEX,
		},
		"an interface, no port": {
			calling(t, a, spans.SwInterfaceSpanEnableDisable, request(loop, two, 1)), api.UNSUPPORTED,
		},
	})
	mustInvoke(t, a, a.taps.TapDeleteV2, &tapv2.TapDeleteV2{SwIfIndex: two}) // takes the mirror to it along
	if all := a.spans(t); len(all) != 1 || all[0].SwIfIndexTo != three {
		t.Fatalf("%+v", all)
	}
	mustInvoke(t, a, spans.SwInterfaceSpanEnableDisable, request(one, noInterface, span.SPAN_STATE_API_DISABLED))
	if all := a.spans(t); len(all) != 0 {
		t.Fatalf("%+v", all)
	}
}

func TestTraceStartsAtInputNodes(t *testing.T) {
	a := newTestClient(t.Context(), start(t, Limits{}).connect(t))
	nodes := vlib.NewServiceClient(a.conn)
	traces := tracedump.NewServiceClient(a.conn)
	for _, name := range []string{"virtio-input", "af-packet-input", "memif-input"} {
		index := mustInvoke(t, a, nodes.GetNodeIndex, &vlib.GetNodeIndex{NodeName: name}).NodeIndex
		mustInvoke(t, a, traces.TraceCapturePackets, &tracedump.TraceCapturePackets{
			NodeIndex:       index,
			MaxPackets:      ^uint32(0),
			PreCaptureClear: true,
		})
	}
	s, err := traces.TraceV2Dump(t.Context(), &tracedump.TraceV2Dump{ThreadID: ^uint32(0), Max: 10})
	if all := collect[*tracedump.TraceV2Details](t, s, err); len(all) != 1 ||
		!strings.HasPrefix(all[0].TraceData, "a path on ") || all[0].More {
		t.Errorf("%+v", all)
	}
	s, err = traces.TraceV2Dump(t.Context(), &tracedump.TraceV2Dump{
		ThreadID:   ^uint32(0),
		Position:   ^uint32(0),
		Max:        ^uint32(0),
		ClearCache: true,
	})
	if all := collect[*tracedump.TraceV2Details](t, s, err); len(all) != 0 {
		t.Errorf("%+v", all)
	}
	mustInvoke(t, a, traces.TraceClearCapture, &tracedump.TraceClearCapture{})
	checkRefusals(t, map[string]refusal{
		"an unknown name": {
			calling(t, a, nodes.GetNodeIndex, &vlib.GetNodeIndex{NodeName: "dpdk-input"}), api.NO_SUCH_NODE,
		},
		"an unknown node": {
			calling(t, a, traces.TraceCapturePackets, &tracedump.TraceCapturePackets{NodeIndex: 9}), api.NO_SUCH_NODE,
		},
		"a filter": {
			calling(t, a, traces.TraceCapturePackets, &tracedump.TraceCapturePackets{NodeIndex: 1, UseFilter: true}),
			api.UNSUPPORTED,
		},
	})
}
