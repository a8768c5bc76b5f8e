package api

import (
	"go.fd.io/govpp/binapi/af_packet"
	"go.fd.io/govpp/binapi/interface_types"

	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/model"
)

func (s *Server) addAFPackets() {
	handle(s, s.addAFPacket)
	handle(s, func(_ *client, r *af_packet.AfPacketDelete) (*af_packet.AfPacketDeleteReply, error) {
		return nil, s.model.DeleteAFPacket(r.HostIfName)
	})
	handleDump(s, func(*af_packet.AfPacketDump) ([]af_packet.AfPacketDetails, error) {
		var list []af_packet.AfPacketDetails
		for _, p := range s.model.AFPackets() {
			list = append(list, af_packet.AfPacketDetails{SwIfIndex: interface_types.InterfaceIndex(p.Index), HostIfName: p.HostName})
		}
		return list, nil
	})
}

// addAFPacket ignores the sizes of rings: there are none.
func (s *Server) addAFPacket(_ *client, r *af_packet.AfPacketCreateV3) (*af_packet.AfPacketCreateV3Reply, error) {
	p := model.AFPacket{HostName: r.HostIfName, Mode: uint32(r.Mode), Flags: model.AFPacketFlags(r.Flags),
		Queues: int(max(r.NumRxQueues, r.NumTxQueues))}
	if !r.UseRandomHwAddr {
		mac := frame.MAC(r.HwAddr)
		p.MAC = &mac
	}
	index, err := s.model.AddAFPacket(p)
	return &af_packet.AfPacketCreateV3Reply{SwIfIndex: interface_types.InterfaceIndex(index)}, err
}
