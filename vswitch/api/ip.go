package api

import (
	"net/netip"

	"go.fd.io/govpp/binapi/arp"
	"go.fd.io/govpp/binapi/ethernet_types"
	"go.fd.io/govpp/binapi/fib_types"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip6_nd"
	"go.fd.io/govpp/binapi/ip_neighbor"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/punt"

	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/model"
)

// addressHandlers serve the addresses of interfaces.
var addressHandlers = []handler{
	set[interfaces.SwInterfaceAddDelAddressReply](func(m *model.Model, r *interfaces.SwInterfaceAddDelAddress) error {
		if r.DelAll {
			return m.Addresses.DeleteAll(uint32(r.SwIfIndex))
		}
		prefix, err := fromPrefix(ip_types.Prefix(r.Prefix))
		if err != nil {
			return err
		}
		return choose(r.IsAdd, m.Addresses.Add, m.Addresses.Delete)(uint32(r.SwIfIndex), prefix)
	}),
	dump(func(m *model.Model, r *ip.IPAddressDump) ([]netip.Prefix, error) {
		return m.Addresses.List(uint32(r.SwIfIndex), familyOf(r.IsIPv6))
	}, func(r *ip.IPAddressDump, p netip.Prefix) ip.IPAddressDetails {
		return ip.IPAddressDetails{SwIfIndex: r.SwIfIndex, Prefix: ip_types.AddressWithPrefix(toPrefix(p))}
	}),
	// The field names of this request are misleading, as VPP's source remarks: sw_if_index is the donor.
	set[interfaces.SwInterfaceSetUnnumberedReply](func(m *model.Model, r *interfaces.SwInterfaceSetUnnumbered) error {
		if r.IsAdd {
			return m.Addresses.SetUnnumbered(uint32(r.UnnumberedSwIfIndex), uint32(r.SwIfIndex))
		}
		return m.Addresses.ClearUnnumbered(uint32(r.UnnumberedSwIfIndex))
	}),
	dump(func(m *model.Model, r *ip.IPUnnumberedDump) ([]model.Unnumbered, error) {
		return m.Addresses.Unnumbered(uint32(r.SwIfIndex)), nil
	}, func(_ *ip.IPUnnumberedDump, u model.Unnumbered) ip.IPUnnumberedDetails {
		return ip.IPUnnumberedDetails{SwIfIndex: swIfIndex(u.Index), IPSwIfIndex: swIfIndex(u.Donor)}
	}),
	set[ip.SwInterfaceIP6EnableDisableReply](func(m *model.Model, r *ip.SwInterfaceIP6EnableDisable) error {
		return choose(r.Enable, m.IP6.Enable, m.IP6.Disable)(uint32(r.SwIfIndex))
	}),
	set[ip.SwInterfaceIP6SetLinkLocalAddressReply](func(m *model.Model, r *ip.SwInterfaceIP6SetLinkLocalAddress) error {
		return m.IP6.SetLinkLocal(uint32(r.SwIfIndex), netip.AddrFrom16(r.IP))
	}),
	call(func(
		m *model.Model, r *ip.SwInterfaceIP6GetLinkLocalAddress,
	) (*ip.SwInterfaceIP6GetLinkLocalAddressReply, error) {
		a, err := m.IP6.LinkLocal(uint32(r.SwIfIndex))
		if err != nil {
			return nil, err
		}
		return &ip.SwInterfaceIP6GetLinkLocalAddressReply{IP: a.As16()}, nil
	}),
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
	return choose(isIP6, forward.IP6, forward.IP4)
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
	return ip_types.Address{Af: choose(a.Is4(), ip_types.ADDRESS_IP4, ip_types.ADDRESS_IP6), Un: toUnion(a)}
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

// routeHandlers serve VRFs and their routes.
var routeHandlers = []handler{
	set[ip.IPTableAddDelV2Reply](func(m *model.Model, r *ip.IPTableAddDelV2) error {
		if r.IsAdd {
			m.Tables.Add(tableKey(r.Table), r.Table.Name)
		} else {
			m.Tables.Delete(tableKey(r.Table))
		}
		return nil
	}),
	dump(func(m *model.Model, _ *ip.IPTableDump) ([]model.Table, error) { return m.Tables.List(), nil },
		func(_ *ip.IPTableDump, t model.Table) ip.IPTableDetails {
			return ip.IPTableDetails{Table: ip.IPTable{TableID: t.ID, IsIP6: t.Family == forward.IP6, Name: t.Name}}
		}),
	call(func(m *model.Model, r *ip.IPRouteAddDelV2) (*ip.IPRouteAddDelV2Reply, error) {
		number, err := changeRoute(m, r)
		return &ip.IPRouteAddDelV2Reply{StatsIndex: number}, err
	}),
	call(func(m *model.Model, r *ip.IPRouteAddDel) (*ip.IPRouteAddDelReply, error) {
		number, err := changeRoute(m, &ip.IPRouteAddDelV2{IsAdd: r.IsAdd, IsMultipath: r.IsMultipath,
			Route: ip.IPRouteV2{TableID: r.Route.TableID, Prefix: r.Route.Prefix, Paths: r.Route.Paths}})
		return &ip.IPRouteAddDelReply{StatsIndex: number}, err
	}),
	dump(func(m *model.Model, r *ip.IPRouteV2Dump) ([]model.Route, error) {
		return m.Routes.List(tableKey(r.Table), model.Source(r.Src)), nil
	}, func(r *ip.IPRouteV2Dump, e model.Route) ip.IPRouteV2Details {
		return ip.IPRouteV2Details{
			Route: ip.IPRouteV2{TableID: r.Table.TableID, StatsIndex: e.Number, Prefix: toPrefix(e.Prefix),
				Src: uint8(e.Source), Paths: toPaths(tableKey(r.Table).Family, e.Paths)},
		}
	}),
	dump(func(m *model.Model, r *ip.IPRouteDump) ([]model.Route, error) {
		return m.Routes.List(tableKey(r.Table), 0), nil
	}, func(r *ip.IPRouteDump, e model.Route) ip.IPRouteDetails {
		return ip.IPRouteDetails{
			Route: ip.IPRoute{TableID: r.Table.TableID, StatsIndex: e.Number, Prefix: toPrefix(e.Prefix),
				Paths: toPaths(tableKey(r.Table).Family, e.Paths)},
		}
	}),
}

func tableKey(t ip.IPTable) forward.TableKey {
	return forward.TableKey{Family: familyOf(t.IsIP6), ID: t.TableID}
}

// changeRoute handles both versions of ip_route_add_del. Only routes of the source API can change.
func changeRoute(m *model.Model, r *ip.IPRouteAddDelV2) (uint32, error) {
	prefix, err := fromPrefix(r.Route.Prefix)
	if err != nil {
		return model.NoIndex, err
	}
	if src := model.Source(r.Route.Src); src != 0 && src != model.SourceAPI {
		return model.NoIndex, model.Unsupported
	}
	paths, err := fromPaths(r.Route.Paths)
	if err != nil {
		return model.NoIndex, err
	}
	c := model.RouteChange{Table: forward.TableKey{Family: forward.FamilyOf(prefix.Addr()), ID: r.Route.TableID},
		Prefix: prefix, Paths: paths, Multipath: r.IsMultipath}
	if r.IsAdd {
		return m.Routes.Add(c)
	}
	return model.NoIndex, m.Routes.Delete(c)
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
		path.Interface = model.NoIndex
		path.Table = 0
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
	return convert(paths, func(p model.Path) fib_types.FibPath {
		out := fib_types.FibPath{SwIfIndex: p.Interface, TableID: p.Table, Weight: p.Weight, Preference: p.Preference,
			Proto: choose(f == forward.IP6, fib_types.FIB_API_PATH_NH_PROTO_IP6, fib_types.FIB_API_PATH_NH_PROTO_IP4)}
		for t, kind := range pathKinds {
			if kind == p.Kind {
				out.Type = t // as in VPP the type of PathLinkLocal is normal
			}
		}
		if p.NextHop.IsValid() {
			out.Nh.Address = toUnion(p.NextHop)
		}
		return out
	})
}

func fromPaths(list []fib_types.FibPath) ([]model.Path, error) {
	var paths []model.Path
	for _, p := range list {
		path, err := fromPath(p)
		if err != nil {
			return nil, err
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// neighbourHandlers serve ARP and IPv6 neighbours and the proxies for them.
var neighbourHandlers = []handler{
	call(changeNeighbour),
	set[ip_neighbor.IPNeighborFlushReply](func(m *model.Model, r *ip_neighbor.IPNeighborFlush) error {
		f, err := family(r.Af)
		if err != nil {
			return err
		}
		return m.Neighbours.Flush(uint32(r.SwIfIndex), f)
	}),
	dump(func(m *model.Model, r *ip_neighbor.IPNeighborDump) ([]model.Neighbour, error) {
		f, err := family(r.Af)
		if err != nil {
			return nil, err
		}
		return m.Neighbours.List(uint32(r.SwIfIndex), f), nil
	}, neighbourDetails),
	set[arp.ProxyArpAddDelReply](func(m *model.Model, r *arp.ProxyArpAddDel) error {
		return choose(r.IsAdd, m.Proxies.AddARP, m.Proxies.DeleteARP)(
			forward.ProxyRange{
				Table: r.Proxy.TableID,
				Low:   netip.AddrFrom4(r.Proxy.Low),
				High:  netip.AddrFrom4(r.Proxy.Hi),
			})
	}),
	set[arp.ProxyArpIntfcEnableDisableReply](func(m *model.Model, r *arp.ProxyArpIntfcEnableDisable) error {
		return m.Proxies.SetARP(uint32(r.SwIfIndex), r.Enable)
	}),
	dump(func(m *model.Model, _ *arp.ProxyArpDump) ([]forward.ProxyRange, error) { return m.Proxies.ARPs(), nil },
		func(_ *arp.ProxyArpDump, p forward.ProxyRange) arp.ProxyArpDetails {
			return arp.ProxyArpDetails{Proxy: arp.ProxyArp{TableID: p.Table, Low: p.Low.As4(), Hi: p.High.As4()}}
		}),
	dump(func(m *model.Model, _ *arp.ProxyArpIntfcDump) ([]uint32, error) {
		return m.Proxies.ARPInterfaces(), nil
	},
		func(_ *arp.ProxyArpIntfcDump, index uint32) arp.ProxyArpIntfcDetails {
			return arp.ProxyArpIntfcDetails{SwIfIndex: index}
		}),
	set[ip6_nd.IP6ndProxyAddDelReply](func(m *model.Model, r *ip6_nd.IP6ndProxyAddDel) error {
		return choose(r.IsAdd, m.Proxies.AddND, m.Proxies.DeleteND)(uint32(r.SwIfIndex), netip.AddrFrom16(r.IP))
	}),
	set[ip6_nd.IP6ndProxyEnableDisableReply](func(m *model.Model, r *ip6_nd.IP6ndProxyEnableDisable) error {
		return m.Proxies.SetND(uint32(r.SwIfIndex), r.IsEnable)
	}),
	dump(func(m *model.Model, _ *ip6_nd.IP6ndProxyDump) ([]forward.ProxyHost, error) {
		return m.Proxies.NDs(), nil
	},
		func(_ *ip6_nd.IP6ndProxyDump, p forward.ProxyHost) ip6_nd.IP6ndProxyDetails {
			return ip6_nd.IP6ndProxyDetails{SwIfIndex: swIfIndex(p.Interface), IP: p.Addr.As16()}
		}),
}

func changeNeighbour(m *model.Model, r *ip_neighbor.IPNeighborAddDel) (*ip_neighbor.IPNeighborAddDelReply, error) {
	reply := &ip_neighbor.IPNeighborAddDelReply{StatsIndex: model.NoIndex}
	n := r.Neighbor
	a, err := fromAddress(n.IPAddress)
	if err != nil {
		return reply, err
	}
	if !r.IsAdd {
		return reply, m.Neighbours.Delete(uint32(n.SwIfIndex), a)
	}
	return reply, m.Neighbours.Add(model.Neighbour{Index: uint32(n.SwIfIndex), Addr: a, MAC: frame.MAC(n.MacAddress),
		Static:  n.Flags&ip_neighbor.IP_API_NEIGHBOR_FLAG_STATIC != 0,
		NoRoute: n.Flags&ip_neighbor.IP_API_NEIGHBOR_FLAG_NO_FIB_ENTRY != 0})
}

func neighbourDetails(_ *ip_neighbor.IPNeighborDump, n model.Neighbour) ip_neighbor.IPNeighborDetails {
	return ip_neighbor.IPNeighborDetails{
		Age: n.Age.Seconds(),
		Neighbor: ip_neighbor.IPNeighbor{SwIfIndex: swIfIndex(n.Index),
			Flags: choose(n.Static, ip_neighbor.IP_API_NEIGHBOR_FLAG_STATIC, 0) |
				choose(n.NoRoute, ip_neighbor.IP_API_NEIGHBOR_FLAG_NO_FIB_ENTRY, 0),
			MacAddress: ethernet_types.MacAddress(n.MAC), IPAddress: toAddress(n.Addr)},
	}
}

// allPorts is the port number of set_punt for all ports without a listener.
const allPorts = 0xffff

// puntHandlers serve the packets that are addressed to the dataplane itself.
var puntHandlers = []handler{
	set[ip.AddDelIPPuntRedirectV2Reply](changeRedirect).withList(redirectList()),
	set[punt.SetPuntReply](setPunt),
	dump(func(m *model.Model, r *ip.IPPuntRedirectV2Dump) ([]model.PuntRedirect, error) {
		return m.Punt.Redirects(uint32(r.SwIfIndex), familyOf(r.Af == ip_types.ADDRESS_IP6)), nil
	}, func(r *ip.IPPuntRedirectV2Dump, d model.PuntRedirect) ip.IPPuntRedirectV2Details {
		paths := toPaths(d.Family, []model.Path{d.Path})
		return ip.IPPuntRedirectV2Details{
			Punt: ip.PuntRedirectV2{RxSwIfIndex: swIfIndex(d.Rx), Af: r.Af, NPaths: uint32(len(paths)), Paths: paths},
		}
	}),
}

// redirectList returns the position of the path count, the last field before the paths, and the length of a path.
func redirectList() (count, item int) {
	empty := &ip.AddDelIPPuntRedirectV2{}
	one := &ip.AddDelIPPuntRedirectV2{Punt: ip.PuntRedirectV2{Paths: make([]fib_types.FibPath, 1)}}
	return empty.Size() - 4, one.Size() - empty.Size()
}

func changeRedirect(m *model.Model, r *ip.AddDelIPPuntRedirectV2) error {
	f, err := family(r.Punt.Af)
	if err != nil {
		return err
	}
	paths, err := fromPaths(r.Punt.Paths)
	if err != nil {
		return err
	}
	if r.IsAdd {
		return m.Punt.SetRedirect(uint32(r.Punt.RxSwIfIndex), f, paths)
	}
	m.Punt.DeleteRedirect(uint32(r.Punt.RxSwIfIndex), f)
	return nil
}

// setPunt accepts all ports of UDP, and of TCP, which the dataplane always punts, as VPP does without its host stack.
// Single ports and exception reasons are not supported.
func setPunt(m *model.Model, r *punt.SetPunt) error {
	l4 := r.Punt.Punt.GetL4()
	isL4 := r.Punt.Type == punt.PUNT_API_TYPE_L4 && (l4.Af == ip_types.ADDRESS_IP4 || l4.Af == ip_types.ADDRESS_IP6)
	isUDP := l4.Protocol == ip_types.IP_API_PROTO_UDP
	isTCP := l4.Protocol == ip_types.IP_API_PROTO_TCP
	switch {
	case !isL4 || !isUDP && !isTCP || l4.Port != allPorts:
		return model.Unspecified
	case isUDP:
		m.Punt.SetUDP(familyOf(l4.Af == ip_types.ADDRESS_IP6), r.IsAdd)
	}
	return nil
}
