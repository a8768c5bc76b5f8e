package operations

import (
	"context"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weftnet/weft/agent/southbound"
	"github.com/weftnet/weft/dataplane/vpp"
	"github.com/weftnet/weft/podmanager"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
	"github.com/weftnet/weft/wire"
)

// counters reads the counters of the dataplane.
type counters struct {
	pods      *podmanager.Manager
	dataplane *vpp.Client
	links     *southbound.Counters
}

// Counters reads the counters of the dataplane.
func (r *counters) Counters(ctx context.Context, _ *operatorv1.CountersRequest) (*operatorv1.CountersReply, error) {
	c, err := r.links.Read(ctx)
	if err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	exceeded, err := r.dataplane.Statistics().Violations(ctx)
	if err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	reply := &operatorv1.CountersReply{}
	for _, i := range southbound.PodCounters(r.pods.Attachments(), c) {
		reply.Interfaces = append(reply.Interfaces, &operatorv1.InterfaceCounters{
			Attachment: attachmentOf(i.At.Key), Pod: podOf(i.At.Pod), Interface: i.Name, Type: i.Type, Object: i.Object,
			RxPackets: i.RxPackets, RxBytes: i.RxBytes, RxDrops: i.RxDrops,
			TxPackets: i.TxPackets, TxBytes: i.TxBytes, TxDrops: i.TxDrops, Connected: i.Connected,
			RxExceeded: exceeded[wire.PolicerName(i.Object, wire.PoliceOutput)].Packets,
			TxExceeded: exceeded[wire.PolicerName(i.Object, wire.PoliceInput)].Packets,
		})
	}
	for _, e := range slices.Concat(c.Errors, c.Refused) {
		text, statistic := southbound.Explain(e.Node, e.Reason)
		reply.Errors = append(reply.Errors, &operatorv1.ErrorCounter{
			Node:        e.Node,
			Reason:      e.Reason,
			Count:       e.Count,
			Explanation: text,
			Statistic:   statistic,
		})
	}
	return reply, nil
}
