package api

import (
	"net/netip"

	"go.fd.io/govpp/binapi/arp"
	"go.fd.io/govpp/binapi/ethernet_types"
	"go.fd.io/govpp/binapi/fib_types"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip6_nd"
	"go.fd.io/govpp/binapi/ip_neighbor"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/punt"

	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/model"
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

// addUnnumbered registers the messages of unnumbered interfaces. The field names of the request are
// misleading, as VPP's source remarks: sw_if_index is the donor.
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

// family converts an address family.
func family(af ip_types.AddressFamily) (forward.Family, error) {
	switch af {
	case ip_types.ADDRESS_IP4:
		return forward.IP4, nil
	case ip_types.ADDRESS_IP6:
		return forward.IP6, nil
	}
	return 0, model.InvalidAddressFamily
}

// familyOf returns the family for an is_ipv6 field.
func familyOf(isIP6 bool) forward.Family {
	if isIP6 {
		return forward.IP6
	}
	return forward.IP4
}

func fromUnion(f forward.Family, u ip_types.AddressUnion) netip.Addr {
	if f == forward.IP4 {
		return netip.AddrFrom4(u.GetIP4())
	}
	return netip.AddrFrom16(u.GetIP6())
}

func toUnion(a netip.Addr) ip_types.AddressUnion {
	if a.Is4() {
		return ip_types.AddressUnionIP4(a.As4())
	}
	return ip_types.AddressUnionIP6(a.As16())
}

func fromAddress(a ip_types.Address) (netip.Addr, error) {
	f, err := family(a.Af)
	if err != nil {
		return netip.Addr{}, err
	}
	return fromUnion(f, a.Un), nil
}

func toAddress(a netip.Addr) ip_types.Address {
	if a.Is4() {
		return ip_types.Address{Af: ip_types.ADDRESS_IP4, Un: toUnion(a)}
	}
	return ip_types.Address{Af: ip_types.ADDRESS_IP6, Un: toUnion(a)}
}

// fromPrefix converts a prefix with its host bits. An invalid length makes an invalid prefix, not an error, because
// VPP's retval for it depends on the message.
func fromPrefix(p ip_types.Prefix) (netip.Prefix, error) {
	a, err := fromAddress(p.Address)
	if err != nil {
		return netip.Prefix{}, err
	}
	return netip.PrefixFrom(a, int(p.Len)), nil
}

func toPrefix(p netip.Prefix) ip_types.Prefix {
	return ip_types.Prefix{Address: toAddress(p.Addr()), Len: uint8(p.Bits())}
}

func (s *Server) addRoutes() {
	handle(s, func(_ *client, r *ip.IPRouteAddDelV2) (*ip.IPRouteAddDelV2Reply, error) {
		number, err := s.changeRoute(r)
		return &ip.IPRouteAddDelV2Reply{StatsIndex: number}, err
	})
	handle(s, func(_ *client, r *ip.IPRouteAddDel) (*ip.IPRouteAddDelReply, error) {
		number, err := s.changeRoute(&ip.IPRouteAddDelV2{IsAdd: r.IsAdd, IsMultipath: r.IsMultipath,
			Route: ip.IPRouteV2{TableID: r.Route.TableID, Prefix: r.Route.Prefix, Paths: r.Route.Paths}})
		return &ip.IPRouteAddDelReply{StatsIndex: number}, err
	})
	handleDump(s, func(r *ip.IPRouteV2Dump) ([]ip.IPRouteV2Details, error) {
		var list []ip.IPRouteV2Details
		for _, e := range s.model.Routes(tableKey(r.Table), model.Source(r.Src)) {
			list = append(list, ip.IPRouteV2Details{Route: ip.IPRouteV2{TableID: r.Table.TableID, StatsIndex: e.Number,
				Prefix: toPrefix(e.Prefix), Src: uint8(e.Source), Paths: toPaths(tableKey(r.Table).Family, e.Paths)}})
		}
		return list, nil
	})
	handleDump(s, func(r *ip.IPRouteDump) ([]ip.IPRouteDetails, error) {
		var list []ip.IPRouteDetails
		for _, e := range s.model.Routes(tableKey(r.Table), 0) {
			list = append(list, ip.IPRouteDetails{Route: ip.IPRoute{TableID: r.Table.TableID, StatsIndex: e.Number,
				Prefix: toPrefix(e.Prefix), Paths: toPaths(tableKey(r.Table).Family, e.Paths)}})
		}
		return list, nil
	})
}

// changeRoute handles both versions of ip_route_add_del. Only routes of the source API can change.
func (s *Server) changeRoute(r *ip.IPRouteAddDelV2) (uint32, error) {
	prefix, err := fromPrefix(r.Route.Prefix)
	if err != nil {
		return model.NoIndex, err
	}
	if src := model.Source(r.Route.Src); src != 0 && src != model.SourceAPI {
		return model.NoIndex, model.Unsupported
	}
	isIP6 := r.Route.Prefix.Address.Af == ip_types.ADDRESS_IP6
	c := model.RouteChange{Table: forward.TableKey{Family: familyOf(isIP6), ID: r.Route.TableID},
		Prefix: prefix, Multipath: r.IsMultipath}
	for _, p := range r.Route.Paths {
		path, err := fromPath(p)
		if err != nil {
			return model.NoIndex, err
		}
		c.Paths = append(c.Paths, path)
	}
	if r.IsAdd {
		return s.model.AddRoute(c)
	}
	return model.NoIndex, s.model.DeleteRoute(c)
}

// pathKinds are the supported path types.
var pathKinds = map[fib_types.FibPathType]model.PathKind{
	fib_types.FIB_API_PATH_TYPE_NORMAL:        model.PathNormal,
	fib_types.FIB_API_PATH_TYPE_LOCAL:         model.PathLocal,
	fib_types.FIB_API_PATH_TYPE_DROP:          model.PathDrop,
	fib_types.FIB_API_PATH_TYPE_ICMP_UNREACH:  model.PathUnreachable,
	fib_types.FIB_API_PATH_TYPE_ICMP_PROHIBIT: model.PathProhibit,
}

func fromPath(p fib_types.FibPath) (model.Path, error) {
	kind, ok := pathKinds[p.Type]
	if !ok || p.Flags != 0 || p.NLabels != 0 || p.RpfID != 0 && p.RpfID != model.NoIndex {
		return model.Path{}, model.Unsupported
	}
	path := model.Path{Kind: kind, Interface: p.SwIfIndex, Table: p.TableID, Weight: p.Weight, Preference: p.Preference}
	switch {
	case kind != model.PathNormal && kind != model.PathLocal:
		path.Interface, path.Table = model.NoIndex, 0
		return path, nil
	case kind == model.PathLocal:
		path.Table = 0
		return path, nil
	case p.Proto != fib_types.FIB_API_PATH_NH_PROTO_IP4 && p.Proto != fib_types.FIB_API_PATH_NH_PROTO_IP6:
		return path, model.FIBPathUnsupportedNextHop
	}
	nextHop := fromUnion(familyOf(p.Proto == fib_types.FIB_API_PATH_NH_PROTO_IP6), p.Nh.Address)
	if !nextHop.IsUnspecified() {
		path.NextHop = nextHop
	}
	return path, nil
}

func toPaths(f forward.Family, paths []model.Path) []fib_types.FibPath {
	list := make([]fib_types.FibPath, 0, len(paths))
	for _, p := range paths {
		out := fib_types.FibPath{SwIfIndex: p.Interface, TableID: p.Table, Weight: p.Weight, Preference: p.Preference}
		for t, kind := range pathKinds {
			if kind == p.Kind {
				out.Type = t // as in VPP the type of PathLinkLocal is normal
			}
		}
		if f == forward.IP6 {
			out.Proto = fib_types.FIB_API_PATH_NH_PROTO_IP6
		}
		if p.NextHop.IsValid() {
			out.Nh.Address = toUnion(p.NextHop)
		}
		list = append(list, out)
	}
	return list
}

func (s *Server) addTables() {
	handle(s, func(_ *client, r *ip.IPTableAddDelV2) (*ip.IPTableAddDelV2Reply, error) {
		if r.IsAdd {
			s.model.AddTable(tableKey(r.Table), r.Table.Name)
		} else {
			s.model.DeleteTable(tableKey(r.Table))
		}
		return nil, nil
	})
	handleDump(s, func(*ip.IPTableDump) ([]ip.IPTableDetails, error) {
		var list []ip.IPTableDetails
		for _, t := range s.model.Tables() {
			list = append(list, ip.IPTableDetails{Table: ip.IPTable{TableID: t.ID, IsIP6: t.Family == forward.IP6, Name: t.Name}})
		}
		return list, nil
	})
}

func tableKey(t ip.IPTable) forward.TableKey {
	return forward.TableKey{Family: familyOf(t.IsIP6), ID: t.TableID}
}

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

func (s *Server) addProxies() {
	handle(s, s.changeProxyARP)
	handle(s, func(_ *client, r *arp.ProxyArpIntfcEnableDisable) (*arp.ProxyArpIntfcEnableDisableReply, error) {
		return nil, s.model.SetProxyARP(uint32(r.SwIfIndex), r.Enable)
	})
	handleDump(s, s.dumpProxyARPs)
	handleDump(s, func(*arp.ProxyArpIntfcDump) ([]arp.ProxyArpIntfcDetails, error) {
		var list []arp.ProxyArpIntfcDetails
		for _, index := range s.model.ProxyARPInterfaces() {
			list = append(list, arp.ProxyArpIntfcDetails{SwIfIndex: index})
		}
		return list, nil
	})
	handle(s, func(_ *client, r *ip6_nd.IP6ndProxyAddDel) (*ip6_nd.IP6ndProxyAddDelReply, error) {
		host := netip.AddrFrom16(r.IP)
		if r.IsAdd {
			return nil, s.model.AddProxyND(uint32(r.SwIfIndex), host)
		}
		return nil, s.model.DeleteProxyND(uint32(r.SwIfIndex), host)
	})
	handle(s, func(_ *client, r *ip6_nd.IP6ndProxyEnableDisable) (*ip6_nd.IP6ndProxyEnableDisableReply, error) {
		return nil, s.model.SetProxyND(uint32(r.SwIfIndex), r.IsEnable)
	})
	handleDump(s, s.dumpProxyNDs)
}

func (s *Server) changeProxyARP(_ *client, r *arp.ProxyArpAddDel) (*arp.ProxyArpAddDelReply, error) {
	p := forward.ProxyRange{Table: r.Proxy.TableID, Low: netip.AddrFrom4(r.Proxy.Low), High: netip.AddrFrom4(r.Proxy.Hi)}
	if r.IsAdd {
		return nil, s.model.AddProxyARP(p)
	}
	return nil, s.model.DeleteProxyARP(p)
}

func (s *Server) dumpProxyARPs(*arp.ProxyArpDump) ([]arp.ProxyArpDetails, error) {
	var list []arp.ProxyArpDetails
	for _, p := range s.model.ProxyARPs() {
		list = append(list, arp.ProxyArpDetails{Proxy: arp.ProxyArp{TableID: p.Table, Low: p.Low.As4(), Hi: p.High.As4()}})
	}
	return list, nil
}

func (s *Server) dumpProxyNDs(*ip6_nd.IP6ndProxyDump) ([]ip6_nd.IP6ndProxyDetails, error) {
	var list []ip6_nd.IP6ndProxyDetails
	for _, p := range s.model.ProxyNDs() {
		list = append(list, ip6_nd.IP6ndProxyDetails{SwIfIndex: interface_types.InterfaceIndex(p.Interface), IP: ip_types.IP6Address(p.Addr.As16())})
	}
	return list, nil
}

// allPorts is the port number of set_punt for all ports without a listener.
const allPorts = 0xffff

// addPunts registers the messages for packets that are addressed to the dataplane itself.
func (s *Server) addPunts() {
	handle(s, s.changeRedirect)
	empty := &ip.AddDelIPPuntRedirectV2{}
	one := &ip.AddDelIPPuntRedirectV2{Punt: ip.PuntRedirectV2{Paths: make([]fib_types.FibPath, 1)}}
	s.table.addList(empty, list{count: empty.Size() - 4, item: one.Size() - empty.Size()}) // the count is the last field before the paths
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

// setPunt accepts all ports of UDP, and of TCP, which the dataplane always punts, as VPP does without its host stack.
// Single ports and exception reasons are not supported.
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
