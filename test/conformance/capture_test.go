package conformance

import (
	"go.fd.io/govpp/binapi/span"
	"go.fd.io/govpp/binapi/tracedump"
	"go.fd.io/govpp/binapi/vlib"
)

func mirror(from, to index, state span.SpanState) *span.SwInterfaceSpanEnableDisable {
	return &span.SwInterfaceSpanEnableDisable{SwIfIndexFrom: from, SwIfIndexTo: to, State: state}
}

// captureCases are the messages of weftctl capture and weftctl trace. Node indexes differ between builds, so they are
// not recorded.
var captureCases = []testCase{
	{name: "capture: mirrors are set, replaced, dumped and removed", run: func(l *lab) {
		l.must(socket(1, l.inRun("mirror.sock"), true))
		a := l.make("a", newMemif(1, 1))
		b := l.make("b", newMemif(1, 2))
		c := l.make("c", newMemif(1, 3))
		list := &span.SwInterfaceSpanDump{}
		l.each(list, mirror(a, b, span.SPAN_STATE_API_RX), list, mirror(a, b, span.SPAN_STATE_API_RX_TX),
			mirror(a, c, span.SPAN_STATE_API_TX), list,
			mirror(a, b, span.SPAN_STATE_API_DISABLED), list, mirror(a, b, span.SPAN_STATE_API_DISABLED),
			mirror(a, allInterfaces, span.SPAN_STATE_API_DISABLED), list,
			mirror(a, a, span.SPAN_STATE_API_RX), mirror(a, allInterfaces, span.SPAN_STATE_API_RX),
			mirror(allInterfaces, a, span.SPAN_STATE_API_RX),
			mirror(a, b, 4), list)
	}},
	{name: "capture: traces are started, read and cleared", run: func(l *lab) {
		read := &tracedump.TraceV2Dump{ThreadID: ^uint32(0), Max: 10, ClearCache: true}
		for _, name := range []string{"memif-input", "af-packet-input"} {
			reply := l.must(&vlib.GetNodeIndex{NodeName: name}).(*vlib.GetNodeIndexReply)
			l.must(&tracedump.TraceCapturePackets{NodeIndex: reply.NodeIndex, MaxPackets: 10, PreCaptureClear: true})
		}
		l.each(&vlib.GetNodeIndex{NodeName: "no-such-node"}, read, &tracedump.TraceClearCapture{}, read)
	}},
}
