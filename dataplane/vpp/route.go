package vpp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/fib"
	"go.fd.io/govpp/binapi/fib_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_types"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// sourceName is the dataplane's name of routes from the API. Routes that it derives from addresses, neighbours and
// tables have other sources.
const (
	sourceName  = "API"
	usualSource = 8 // FIB_SOURCE_API of VPP 25.10
)

const maxPaths = 255

type routeItem = kvscheduler.Item[wire.Route, Table]

func routeDescriptor(c *Client) kvscheduler.Descriptor[wire.Route, Table] {
	return kvscheduler.Descriptor[wire.Route, Table]{
		Name: wire.KindRoute, Lane: Lane,
		Equal:    equalRoutes,
		Validate: validateRoute,
		Deps:     routeDeps,
		Recreate: func(have, want wire.Route) bool { return have.VRF != want.VRF || have.Prefix != want.Prefix },
		After:    []string{wire.KindVRF, wire.KindInterface},
		Backend: readable[wire.Route, Table]{
			simple[wire.Route, Table]{c: c, create: addRoute, delete: deleteRoute, list: routes{c}.read},
		},
	}
}

func validateRoute(name string, v wire.Route) error {
	switch {
	case !v.Prefix.IsValid() || v.Prefix != v.Prefix.Masked():
		return fmt.Errorf("prefix %s is not masked", v.Prefix)
	case name != wire.RouteName(v.VRF, v.Prefix):
		return fmt.Errorf("VRF and prefix make the name %s", wire.RouteName(v.VRF, v.Prefix))
	case len(v.Paths) == 0 || len(v.Paths) > maxPaths:
		return fmt.Errorf("%d paths: a route has 1 to %d", len(v.Paths), maxPaths)
	}
	for _, p := range v.Paths {
		if err := validatePath(p, len(v.Paths) == 1); err != nil {
			return err
		}
	}
	return nil
}

func validatePath(p wire.Path, alone bool) error {
	switch {
	case p.Type != wire.PathForward && p.Type != wire.PathUnreachable:
		return fmt.Errorf("path type %q is not known", p.Type)
	case p.Type == wire.PathForward && p.Interface == "":
		return errors.New("a path has no interface")
	case p.Type == wire.PathUnreachable && (!alone || p != wire.Path{Type: p.Type}):
		return errors.New("an unreachable path has nothing but its type, and no other path beside it")
	}
	return nil
}

// routeDeps returns the VRF and the interfaces in the order of the paths.
func routeDeps(_ string, v wire.Route) []kvscheduler.Dep {
	deps := []kvscheduler.Dep{{Label: "VRF", On: ref(wire.KindVRF, v.VRF)}}
	for _, p := range v.Paths {
		if p.Type != wire.PathUnreachable { // which is the only path
			deps = append(deps, kvscheduler.Dep{
				Label: "interface",
				On:    ref(wire.KindInterface, p.Interface),
				Mode:  kvscheduler.Follow,
			})
		}
	}
	return deps
}

// equalRoutes compares paths as a set: the dataplane keeps them in an order of its own.
func equalRoutes(want, have wire.Route) bool {
	return want.VRF == have.VRF && want.Prefix == have.Prefix &&
		slices.Equal(canonicalPaths(want), canonicalPaths(have))
}

// canonicalPaths returns the paths of a route in comparable form. A host route attached to an interface and one with
// the host itself as next hop are the same adjacency; VPP reports both in the second form (fib_table.c,
// fib_table_route_path_fixup).
func canonicalPaths(r wire.Route) []wire.Path {
	paths := slices.Clone(r.Paths)
	for i := range paths {
		paths[i].Weight = max(paths[i].Weight, 1)
		if r.Prefix.IsSingleIP() && paths[i].NextHop == r.Prefix.Addr() {
			paths[i].NextHop = netip.Addr{}
		}
	}
	slices.SortFunc(paths, func(a, b wire.Path) int {
		return cmp.Or(cmp.Compare(a.Interface, b.Interface), a.NextHop.Compare(b.NextHop),
			cmp.Compare(a.Weight, b.Weight))
	})
	return paths
}

// addRoute adds a route, or replaces all paths of an existing one.
func addRoute(it *routeItem) *request {
	it.NewMeta = handle[Table](it, 0)
	paths := make([]fib_types.FibPath, len(it.Want.Paths))
	for i, p := range it.Want.Paths {
		out := noIndex
		if p.Type == wire.PathForward {
			out = handle[Index](it, i+1)
		}
		paths[i] = apiPath(p, it.Want.Prefix, out)
	}
	return ask(fmt.Sprintf("ip_route_add_del: add %s to %s", it.Want.Prefix, it.Want.VRF), &ip.IPRouteAddDel{
		IsAdd: true,
		Route: ip.IPRoute{
			TableID: it.NewMeta.ID,
			Prefix:  apiPrefix(it.Want.Prefix),
			NPaths:  uint8(len(paths)),
			Paths:   paths,
		},
	}, &ip.IPRouteAddDelReply{})
}

func deleteRoute(it *routeItem) *request {
	return ask(fmt.Sprintf("ip_route_add_del: delete %s from %s", it.Have.Prefix, it.Have.VRF), &ip.IPRouteAddDel{
		Route: ip.IPRoute{TableID: it.Meta.ID, Prefix: apiPrefix(it.Have.Prefix)}, // no paths: the whole entry
	}, &ip.IPRouteAddDelReply{}).fineIf(api.NO_SUCH_ENTRY, api.NO_SUCH_FIB, api.UNKNOWN_DESTINATION)
}

var pathTypes = map[wire.PathType]fib_types.FibPathType{
	wire.PathForward:     fib_types.FIB_API_PATH_TYPE_NORMAL,
	wire.PathUnreachable: fib_types.FIB_API_PATH_TYPE_ICMP_UNREACH,
}

func apiPath(p wire.Path, destination netip.Prefix, i Index) fib_types.FibPath {
	path := fib_types.FibPath{
		SwIfIndex: uint32(i),
		Weight:    max(p.Weight, 1),
		Type:      pathTypes[p.Type],
		Proto:     fib_types.FIB_API_PATH_NH_PROTO_IP4,
	}
	family := destination.Addr()
	if p.NextHop.IsValid() {
		family = p.NextHop
		path.Nh.Address = apiAddress(p.NextHop).Un
	}
	if family.Is6() {
		path.Proto = fib_types.FIB_API_PATH_NH_PROTO_IP6
	}
	return path
}

// path is the inverse of apiPath. A path of another type gets an interface name that is invalid for desired values.
func (n names) path(f fib_types.FibPath) wire.Path {
	if f.Type == pathTypes[wire.PathUnreachable] {
		return wire.Path{Type: wire.PathUnreachable} // its other fields have no meaning
	}
	path := wire.Path{Interface: n.of(Index(f.SwIfIndex)), Weight: f.Weight}
	if f.Type != fib_types.FIB_API_PATH_TYPE_NORMAL {
		path.Interface = "#" + f.Type.String()
	}
	next := ip_types.Address{Af: ip_types.ADDRESS_IP4, Un: f.Nh.Address}
	if f.Proto == fib_types.FIB_API_PATH_NH_PROTO_IP6 {
		next.Af = ip_types.ADDRESS_IP6
	}
	if a := address(next); !a.IsUnspecified() {
		path.NextHop = a
	}
	return path
}

// routes reads the routes from the API.
type routes struct{ c *Client }

// read lists the routes from the API in our VRFs. With names it lists the VRFs of these objects.
func (b routes) read(ctx context.Context, names []string) ([]kvscheduler.Actual[wire.Route, Table], error) {
	p, tables, err := both(ctx, b.c.ports, vrfs{c: b.c}.tables)
	if err != nil {
		return nil, err
	}
	source, err := b.source(ctx)
	if err != nil {
		return nil, err
	}
	var requests []*request
	var vrfs []string
	for vrf, table := range tables.byName {
		if len(names) == 0 || concerns(vrf, names) {
			requests = append(requests, askAll(&ip.IPRouteV2Dump{
				Src: source, Table: ip.IPTable{TableID: table.ID, IsIP6: table.Family == netaddr.IP6},
			}, &ip.IPRouteV2Details{}))
			vrfs = append(vrfs, vrf)
		}
	}
	if err := b.c.exchangeAll(ctx, requests); err != nil {
		return nil, err
	}
	var found []kvscheduler.Actual[wire.Route, Table]
	for i, r := range requests {
		for _, d := range listOf[*ip.IPRouteV2Details](r) {
			// VPP shows the prefix as the first source wrote it, which an address of an interface does with its host
			// bits.
			v := wire.Route{VRF: vrfs[i], Prefix: prefix(d.Route.Prefix).Masked()}
			for _, f := range withoutBackupDrop(d.Route.Paths) {
				v.Paths = append(v.Paths, p.byIndex.path(f))
			}
			found = append(found, kvscheduler.Actual[wire.Route, Table]{
				Name: wire.RouteName(v.VRF, v.Prefix),
				V:    v,
				Meta: tables.byName[v.VRF],
			})
		}
	}
	return found, nil
}

// source is the dataplane's number of the API as a source of routes. A dataplane without a message for it uses
// the number of VPP.
func (b routes) source(ctx context.Context) (uint8, error) {
	r := askAll(&fib.FibSourceDump{}, &fib.FibSourceDetails{})
	err := b.c.exchangeAll(ctx, []*request{r})
	missing := new(MissingMessage)
	if errors.As(err, &missing) {
		return usualSource, nil
	}
	for _, d := range listOf[*fib.FibSourceDetails](r) {
		if err == nil && d.Src.Name == sourceName {
			return d.Src.ID, nil
		}
	}
	return 0, errors.Join(err, fmt.Errorf("the dataplane has no route source %s", sourceName))
}
