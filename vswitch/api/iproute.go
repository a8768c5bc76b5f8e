package api

import (
	"go.fd.io/govpp/binapi/fib_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_types"

	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/model"
)

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

// changeRoute serves both versions of ip_route_add_del. Routes of other sources than the API are not ours to change.
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

// pathKinds are the path types that are served.
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
				out.Type = t // VPP tells a path of kind PathLinkLocal as a normal one
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
