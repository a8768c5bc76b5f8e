package api

import (
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/punt"

	"github.com/weftnet/weft/vswitch/model"
)

// allPorts is what set_punt calls all ports that nothing listens on.
const allPorts = 0xffff

// addPunts adds the messages for packets that are sent to the dataplane itself.
func (s *Server) addPunts() {
	handle(s, s.changeRedirect)
	handle(s, s.setPunt)
	handleDump(s, func(r *ip.IPPuntRedirectV2Dump) ([]ip.IPPuntRedirectV2Details, error) {
		var list []ip.IPPuntRedirectV2Details
		for _, d := range s.model.PuntRedirects(uint32(r.SwIfIndex), familyOf(r.Af == ip_types.ADDRESS_IP6)) {
			paths := toPaths(d.Family, []model.Path{d.Path})
			list = append(list, ip.IPPuntRedirectV2Details{Punt: ip.PuntRedirectV2{
				RxSwIfIndex: interface_types.InterfaceIndex(d.Rx), Af: r.Af, NPaths: uint32(len(paths)), Paths: paths,
			}})
		}
		return list, nil
	})
}

func (s *Server) changeRedirect(_ *client, r *ip.AddDelIPPuntRedirectV2) (*ip.AddDelIPPuntRedirectV2Reply, error) {
	if r.Punt.Af != ip_types.ADDRESS_IP4 && r.Punt.Af != ip_types.ADDRESS_IP6 {
		return nil, model.InvalidAddressFamily
	}
	family := familyOf(r.Punt.Af == ip_types.ADDRESS_IP6)
	var paths []model.Path
	for _, p := range r.Punt.Paths {
		path, err := fromPath(p)
		if err != nil {
			return nil, err
		}
		paths = append(paths, path)
	}
	if r.IsAdd {
		return nil, s.model.SetPuntRedirect(uint32(r.Punt.RxSwIfIndex), family, paths)
	}
	s.model.DeletePuntRedirect(uint32(r.Punt.RxSwIfIndex), family)
	return nil, nil
}

// setPunt takes what VPP takes of all ports: UDP, and TCP, which is punted without it where VPP's host stack is off. Single
// ports and reasons of exceptions are not served.
func (s *Server) setPunt(_ *client, r *punt.SetPunt) (*punt.SetPuntReply, error) {
	l4 := r.Punt.Punt.GetL4()
	isL4 := r.Punt.Type == punt.PUNT_API_TYPE_L4 && (l4.Af == ip_types.ADDRESS_IP4 || l4.Af == ip_types.ADDRESS_IP6)
	isUDP, isTCP := l4.Protocol == ip_types.IP_API_PROTO_UDP, l4.Protocol == ip_types.IP_API_PROTO_TCP
	switch {
	case !isL4 || !isUDP && !isTCP || l4.Port != allPorts:
		return nil, model.Unspecified
	case isUDP:
		s.model.SetPuntUDP(familyOf(l4.Af == ip_types.ADDRESS_IP6), r.IsAdd)
	}
	return nil, nil
}
