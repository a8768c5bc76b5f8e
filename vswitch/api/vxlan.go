package api

import (
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/vxlan"

	"github.com/weftnet/weft/vswitch/model"
)

func (s *Server) addVXLANs() {
	handle(s, s.changeVXLAN)
	handleDump(s, func(r *vxlan.VxlanTunnelV2Dump) ([]vxlan.VxlanTunnelV2Details, error) {
		var list []vxlan.VxlanTunnelV2Details
		for _, v := range s.model.VXLANs(uint32(r.SwIfIndex)) {
			list = append(list, vxlan.VxlanTunnelV2Details{
				SwIfIndex: interface_types.InterfaceIndex(v.Index), Instance: v.Instance,
				SrcAddress: toAddress(v.Source), DstAddress: toAddress(v.Destination), SrcPort: v.SourcePort, DstPort: v.DestinationPort,
				McastSwIfIndex: interface_types.InterfaceIndex(v.MulticastInterface), EncapVrfID: v.VRF,
				DecapNextIndex: v.DecapNext, Vni: v.VNI,
			})
		}
		return list, nil
	})
}

// changeVXLAN answers with the index in both cases, as VPP does.
func (s *Server) changeVXLAN(_ *client, r *vxlan.VxlanAddDelTunnelV3) (*vxlan.VxlanAddDelTunnelV3Reply, error) {
	reply := &vxlan.VxlanAddDelTunnelV3Reply{SwIfIndex: noInterface}
	source, err := fromAddress(r.SrcAddress)
	if err != nil {
		return reply, err
	}
	destination, err := fromAddress(r.DstAddress)
	if err != nil {
		return reply, err
	}
	v := model.VXLAN{Instance: r.Instance, Source: source, Destination: destination, SourcePort: r.SrcPort, DestinationPort: r.DstPort,
		VRF: r.EncapVrfID, VNI: r.Vni, DecapNext: r.DecapNextIndex, MulticastInterface: uint32(r.McastSwIfIndex), L3: r.IsL3}
	change := s.model.DeleteVXLAN
	if r.IsAdd {
		change = s.model.AddVXLAN
	}
	index, err := change(v)
	reply.SwIfIndex = interface_types.InterfaceIndex(index)
	return reply, err
}
