package api

import (
	"net/netip"

	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_types"
)

func (s *Server) addAddresses() {
	handle(s, s.changeAddress)
	handleDump(s, func(r *ip.IPAddressDump) ([]ip.IPAddressDetails, error) {
		prefixes, err := s.model.Addresses(uint32(r.SwIfIndex), familyOf(r.IsIPv6))
		var list []ip.IPAddressDetails
		for _, p := range prefixes {
			list = append(list, ip.IPAddressDetails{SwIfIndex: r.SwIfIndex, Prefix: ip_types.AddressWithPrefix(toPrefix(p))})
		}
		return list, err
	})
	s.addUnnumbered()
	s.addIP6()
}

func (s *Server) changeAddress(_ *client, r *interfaces.SwInterfaceAddDelAddress) (*interfaces.SwInterfaceAddDelAddressReply, error) {
	index := uint32(r.SwIfIndex)
	if r.DelAll {
		return nil, s.model.DeleteAddresses(index)
	}
	prefix, err := fromPrefix(ip_types.Prefix(r.Prefix))
	if err != nil {
		return nil, err
	}
	if r.IsAdd {
		return nil, s.model.AddAddress(index, prefix)
	}
	return nil, s.model.DeleteAddress(index, prefix)
}

// addUnnumbered adds the messages about interfaces that use another's addresses. In the request
// the fields' names are the wrong way round, as VPP's source remarks: sw_if_index is the donor.
func (s *Server) addUnnumbered() {
	handle(s, func(_ *client, r *interfaces.SwInterfaceSetUnnumbered) (*interfaces.SwInterfaceSetUnnumberedReply, error) {
		if r.IsAdd {
			return nil, s.model.SetUnnumbered(uint32(r.UnnumberedSwIfIndex), uint32(r.SwIfIndex))
		}
		return nil, s.model.ClearUnnumbered(uint32(r.UnnumberedSwIfIndex))
	})
	handleDump(s, func(r *ip.IPUnnumberedDump) ([]ip.IPUnnumberedDetails, error) {
		var list []ip.IPUnnumberedDetails
		for _, u := range s.model.Unnumbered(uint32(r.SwIfIndex)) {
			list = append(list, ip.IPUnnumberedDetails{SwIfIndex: interface_types.InterfaceIndex(u.Index),
				IPSwIfIndex: interface_types.InterfaceIndex(u.Donor)})
		}
		return list, nil
	})
}

func (s *Server) addIP6() {
	handle(s, func(_ *client, r *ip.SwInterfaceIP6EnableDisable) (*ip.SwInterfaceIP6EnableDisableReply, error) {
		if r.Enable {
			return nil, s.model.EnableIP6(uint32(r.SwIfIndex))
		}
		return nil, s.model.DisableIP6(uint32(r.SwIfIndex))
	})
	handle(s, func(_ *client, r *ip.SwInterfaceIP6SetLinkLocalAddress) (*ip.SwInterfaceIP6SetLinkLocalAddressReply, error) {
		return nil, s.model.SetLinkLocal(uint32(r.SwIfIndex), netip.AddrFrom16(r.IP))
	})
	handle(s, func(_ *client, r *ip.SwInterfaceIP6GetLinkLocalAddress) (*ip.SwInterfaceIP6GetLinkLocalAddressReply, error) {
		a, err := s.model.LinkLocal(uint32(r.SwIfIndex))
		if err != nil {
			return nil, err
		}
		return &ip.SwInterfaceIP6GetLinkLocalAddressReply{IP: a.As16()}, nil
	})
}
