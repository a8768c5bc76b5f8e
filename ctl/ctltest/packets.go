package ctltest

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

// packets sends the packets of the replies to each capture.
type packets struct {
	operatorv1.UnimplementedPacketsServer
	agent *Agent
}

// Capture sends the packets, and ends at the count of the request or after the last packet.
func (p packets) Capture(
	req *operatorv1.CaptureRequest, stream grpc.ServerStreamingServer[operatorv1.CaptureReply],
) error {
	if err := p.agent.record(stream.Context(), req); err != nil {
		return err
	}
	sent := p.agent.replies.Packets
	reason := "time"
	if req.Count > 0 && req.Count <= uint64(len(sent)) {
		sent = sent[:req.Count]
		reason = "count"
	}
	start := &operatorv1.CaptureStart{Object: "weft-a-eth0", LinkType: "ethernet", SnapLength: req.SnapLength}
	for _, reply := range []*operatorv1.CaptureReply{
		{Part: &operatorv1.CaptureReply_Start{Start: start}},
		{Part: &operatorv1.CaptureReply_Packets{Packets: &operatorv1.CapturedPackets{Packets: sent}}},
		{Part: &operatorv1.CaptureReply_End{End: &operatorv1.CaptureEnd{Reason: reason, Packets: uint64(len(sent))}}},
	} {
		if err := stream.Send(reply); err != nil {
			return err
		}
	}
	return nil
}

// Trace ends without packets.
func (p packets) Trace(
	req *operatorv1.TraceRequest, stream grpc.ServerStreamingServer[operatorv1.TraceReply],
) error {
	return p.agent.record(stream.Context(), req)
}

// samplePackets are an echo request and a request for the MAC of an address.
func samplePackets(now time.Time) []*operatorv1.CapturedPacket {
	echo := []byte("\x02\x00\x00\x00\x00\x02\x02\x00\x00\x00\x00\x01\x08\x00" +
		"\x45\x00\x00\x1c\x00\x00\x00\x00\x40\x01\x00\x00\x0a\x01\x00\x02\x0a\x01\x00\x09" +
		"\x08\x00\xf7\xfe\x00\x01\x00\x00")
	arp := []byte("\xff\xff\xff\xff\xff\xff\x02\x00\x00\x00\x00\x01\x08\x06" +
		"\x00\x01\x08\x00\x06\x04\x00\x01\x02\x00\x00\x00\x00\x01\x0a\x01\x00\x02\x00\x00\x00\x00\x00\x00\x0a\x01\x00\x09")
	return []*operatorv1.CapturedPacket{
		{Time: timestamppb.New(now), Length: uint32(len(echo)), Data: echo},
		{Time: timestamppb.New(now.Add(time.Millisecond)), Length: uint32(len(arp)), Data: arp},
	}
}
