package api

import (
	"go.fd.io/govpp/binapi/ethernet_types"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip_neighbor"

	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/model"
)

func (s *Server) addNeighbours() {
	handle(s, s.changeNeighbour)
	handle(s, func(_ *client, r *ip_neighbor.IPNeighborFlush) (*ip_neighbor.IPNeighborFlushReply, error) {
		f, err := family(r.Af)
		if err != nil {
			return nil, err
		}
		return nil, s.model.FlushNeighbours(uint32(r.SwIfIndex), f)
	})
	handleDump(s, s.dumpNeighbours)
}

func (s *Server) changeNeighbour(_ *client, r *ip_neighbor.IPNeighborAddDel) (*ip_neighbor.IPNeighborAddDelReply, error) {
	reply := &ip_neighbor.IPNeighborAddDelReply{StatsIndex: model.NoIndex}
	n := r.Neighbor
	a, err := fromAddress(n.IPAddress)
	if err != nil {
		return reply, err
	}
	if !r.IsAdd {
		return reply, s.model.DeleteNeighbour(uint32(n.SwIfIndex), a)
	}
	return reply, s.model.AddNeighbour(model.Neighbour{Index: uint32(n.SwIfIndex), Addr: a, MAC: frame.MAC(n.MacAddress),
		Static:  n.Flags&ip_neighbor.IP_API_NEIGHBOR_FLAG_STATIC != 0,
		NoRoute: n.Flags&ip_neighbor.IP_API_NEIGHBOR_FLAG_NO_FIB_ENTRY != 0})
}

func (s *Server) dumpNeighbours(r *ip_neighbor.IPNeighborDump) ([]ip_neighbor.IPNeighborDetails, error) {
	f, err := family(r.Af)
	if err != nil {
		return nil, err
	}
	var list []ip_neighbor.IPNeighborDetails
	for _, n := range s.model.Neighbours(uint32(r.SwIfIndex), f) {
		var flags ip_neighbor.IPNeighborFlags
		if n.Static {
			flags |= ip_neighbor.IP_API_NEIGHBOR_FLAG_STATIC
		}
		if n.NoRoute {
			flags |= ip_neighbor.IP_API_NEIGHBOR_FLAG_NO_FIB_ENTRY
		}
		list = append(list, ip_neighbor.IPNeighborDetails{Age: n.Age.Seconds(), Neighbor: ip_neighbor.IPNeighbor{
			SwIfIndex: interface_types.InterfaceIndex(n.Index), Flags: flags,
			MacAddress: ethernet_types.MacAddress(n.MAC), IPAddress: toAddress(n.Addr)}})
	}
	return list, nil
}
