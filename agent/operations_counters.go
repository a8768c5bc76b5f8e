package agent

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// Counters reads what the dataplane has counted.
func (o *operations) Counters(ctx context.Context, _ *weftv1.CountersRequest) (*weftv1.CountersReply, error) {
	c, err := o.counters.read(ctx)
	if err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	reply := &weftv1.CountersReply{}
	for _, i := range podCounters(o.pods.Attachments(), c) {
		info := attachmentInfo(i.at)
		reply.Interfaces = append(reply.Interfaces, &weftv1.InterfaceCounters{
			Attachment: info.Attachment, Pod: info.Pod, Interface: i.Name, Type: i.Type, Object: i.Object,
			RxPackets: i.RxPackets, RxBytes: i.RxBytes, RxDrops: i.RxDrops,
			TxPackets: i.TxPackets, TxBytes: i.TxBytes, TxDrops: i.TxDrops, Connected: i.connected,
		})
	}
	for _, e := range c.Errors {
		reply.Errors = append(reply.Errors, &weftv1.ErrorCounter{Node: e.Node, Reason: e.Reason, Count: e.Count})
	}
	return reply, nil
}
