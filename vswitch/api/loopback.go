package api

import (
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"

	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/model"
)

func (s *Server) addLoopbacks() {
	handle(s, func(_ *client, r *interfaces.CreateLoopback) (*interfaces.CreateLoopbackReply, error) {
		index, err := s.model.AddLoopback(model.Loopback{MAC: frame.MAC(r.MacAddress)})
		return &interfaces.CreateLoopbackReply{SwIfIndex: interface_types.InterfaceIndex(index)}, err
	})
	handle(s, func(_ *client, r *interfaces.CreateLoopbackInstance) (*interfaces.CreateLoopbackInstanceReply, error) {
		index, err := s.model.AddLoopback(model.Loopback{MAC: frame.MAC(r.MacAddress), Specified: r.IsSpecified, Instance: r.UserInstance})
		return &interfaces.CreateLoopbackInstanceReply{SwIfIndex: interface_types.InterfaceIndex(index)}, err
	})
	handle(s, func(_ *client, r *interfaces.DeleteLoopback) (*interfaces.DeleteLoopbackReply, error) {
		return nil, s.model.DeleteLoopback(uint32(r.SwIfIndex))
	})
}
