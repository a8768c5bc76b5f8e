package linux

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// protocol marks our routes in the kernel (see rtnetlink(7); numbers above 4 are for us to choose).
const protocol = 201

// routes are the functions that need to know what later plugins moved or removed.
type routes struct{ later *Later }

// table is where a route is; removed is true for one that a later plugin removed.
func (s routes) table(v wire.LinuxRoute) (table int, removed bool) {
	return s.later.of(refOf(v.On).Name).table(v)
}

func routeDescriptor(later *Later) kvscheduler.Descriptor[wire.LinuxRoute, Place] {
	s := routes{later}
	return kvscheduler.Descriptor[wire.LinuxRoute, Place]{
		Name: wire.KindLinuxRoute, Lane: Lane,
		Equal:    func(want, have wire.LinuxRoute) bool { return want == have },
		Validate: validateRoute,
		Deps:     routeDeps,
		Recreate: func(have, want wire.LinuxRoute) bool { return true },
		After:    []string{wire.KindNamespace, wire.KindTapPeer, wire.KindVeth},
		Backend: resident[wire.LinuxRoute]{
			kind:      wire.KindLinuxRoute,
			namespace: func(v wire.LinuxRoute) string { return v.Namespace },
			put:       s.add,
			remove:    s.remove,
			find:      s.find,
			list:      listRoutes,
			link:      func(v wire.LinuxRoute) string { return v.Link },
		},
	}
}

func validateRoute(name string, v wire.LinuxRoute) error {
	is4 := v.Destination.Addr().Is4()
	switch {
	case !v.Destination.IsValid() || v.Destination != v.Destination.Masked():
		return fmt.Errorf("destination %s is not masked", v.Destination)
	case v.Gateway.IsValid() && v.Gateway.Is4() != is4:
		return fmt.Errorf("gateway %s is of another family than %s", v.Gateway, v.Destination)
	case v.Source.IsValid() && v.Source.Is4() != is4:
		return fmt.Errorf("source %s is of another family than %s", v.Source, v.Destination)
	case v.MTU < 0:
		return fmt.Errorf("MTU %d is negative", v.MTU)
	}
	return validateOn(v.On, v.Link, name, wire.LinuxRouteKey(v.On, v.Destination))
}

// routeDeps: the kernel takes a preferred source only if it is an address of the machine.
func routeDeps(_ string, v wire.LinuxRoute) []kvscheduler.Dep {
	deps := dependencies(refOf(v.On), kvscheduler.Follow, v.Namespace)
	if !v.Source.IsValid() {
		return deps
	}
	return append(deps, kvscheduler.Dep{Label: "source address", Any: &kvscheduler.Select{
		Kind: wire.KindLinuxAddress, Bucket: v.On,
		Match: func(_ string, a any) bool { return a.(wire.LinuxAddress).Prefix.Addr() == v.Source },
	}})
}

// add leaves a route alone that others made to the same destination: it is ours if it has the same next hop, whichever program
// made it, and else the end of the matter.
func (s routes) add(h *handle, _ string, v wire.LinuxRoute) error {
	l, err := h.linkFor(v.Link, v.Destination.Addr())
	if err != nil {
		return refused(err)
	}
	table, removed := s.table(v)
	if removed {
		return nil
	}
	there, err := routesIn(h, table, v.Destination)
	if err != nil {
		return refused(err)
	}
	for _, r := range there {
		if isOutdated(r, l, v) {
			if err := h.RouteDel(&r); err != nil {
				return refused(fmt.Errorf("delete the route to %s %s that an earlier configuration made: %w", v.Destination, h.way(r), err))
			}
			continue
		}
		if !leadsTo(r, l, v) {
			return permanent(fmt.Errorf("add route to %s through %s: %s leads %s already", v.Destination, v.Link, title(v.Destination), h.way(r)))
		}
		if fromKernel(r, v) == v {
			return nil
		}
	}
	err = h.RouteAdd(kernelRoute(l, v, table))
	if errors.Is(err, unix.EEXIST) {
		err = fmt.Errorf("the same way is there with another source or MTU: %w", err)
	}
	if err != nil {
		return refused(fmt.Errorf("add route to %s through %s: %w", v.Destination, v.Link, err))
	}
	return nil
}

// isOutdated reports whether a route is one that we made with an earlier configuration. It is told only on the node itself,
// where no two objects have a route to the same destination.
func isOutdated(r netlink.Route, l netlink.Link, v wire.LinuxRoute) bool {
	return v.Namespace == "" && r.Protocol == protocol && !leadsTo(r, l, v)
}

func title(destination netip.Prefix) string {
	if destination.Bits() == 0 {
		return "default route"
	}
	return "route"
}

// way says where a route leads.
func (h *handle) way(r netlink.Route) string {
	way := "nowhere"
	if l, err := whole(func() (netlink.Link, error) { return h.LinkByIndex(r.LinkIndex) }); err == nil {
		way = "through " + l.Attrs().Name
	}
	if len(r.Gw) > 0 {
		way += " by " + r.Gw.String()
	}
	return way
}

func leadsTo(r netlink.Route, l netlink.Link, v wire.LinuxRoute) bool {
	return r.LinkIndex == l.Attrs().Index && addrOf(r.Gw) == v.Gateway && r.Type == unix.RTN_UNICAST
}

// routesIn are the routes to just that destination in a table.
func routesIn(h *handle, table int, destination netip.Prefix) ([]netlink.Route, error) {
	filter := &netlink.Route{Table: table}
	list, err := whole(func() ([]netlink.Route, error) {
		return h.RouteListFiltered(family(destination.Addr().Is4()), filter, netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	var found []netlink.Route
	for _, r := range list {
		if to := prefixOf(r.Dst); to == destination || r.Dst == nil && destination.Bits() == 0 {
			found = append(found, r)
		}
	}
	return found, nil
}

func (s routes) remove(h *handle, v wire.LinuxRoute) error {
	l, err := h.link(v.Link)
	table, removed := s.table(v)
	if err != nil || removed {
		return err
	}
	// The protocol keeps us from deleting a route that others made and we only found.
	return h.RouteDel(kernelRoute(l, v, table))
}

func (s routes) find(h *handle, _ string, v wire.LinuxRoute) (wire.LinuxRoute, bool, error) {
	l, err := h.link(v.Link)
	table, removed := s.table(v)
	if err != nil || removed {
		return v, removed && err == nil, err
	}
	there, err := routesIn(h, table, v.Destination)
	for _, r := range there {
		if r.LinkIndex == l.Attrs().Index && (r.Protocol == protocol || leadsTo(r, l, v)) {
			return fromKernel(r, v), true, err
		}
	}
	if err == nil && s.later.of(refOf(v.On).Name).Open {
		_, moved, err := movedTo(h, l, v)
		return v, moved, err
	}
	return v, false, err
}

// listRoutes lists those that an agent made.
func listRoutes(h *handle, v wire.LinuxRoute) (map[string]wire.LinuxRoute, error) {
	l, ours, err := h.nodeLink(v.Link)
	if err != nil || !ours {
		return nil, err
	}
	filter := &netlink.Route{LinkIndex: l.Attrs().Index, Protocol: protocol, Table: unix.RT_TABLE_MAIN}
	list, err := whole(func() ([]netlink.Route, error) {
		return h.RouteListFiltered(netlink.FAMILY_ALL, filter, netlink.RT_FILTER_OIF|netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TABLE)
	})
	found := map[string]wire.LinuxRoute{}
	for _, r := range list {
		v.Destination = destinationOf(r)
		found[refOf(wire.LinuxRouteKey(v.On, v.Destination)).Name] = fromKernel(r, v)
	}
	return found, err
}

// destinationOf is the destination of a route, which the library leaves out of a default route.
func destinationOf(r netlink.Route) netip.Prefix {
	if p := prefixOf(r.Dst); p.IsValid() {
		return p
	}
	if r.Family == netlink.FAMILY_V4 {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

// fromKernel is a route as the kernel has it, on the link of v. Of one that others made, v may leave source and MTU open.
func fromKernel(r netlink.Route, v wire.LinuxRoute) wire.LinuxRoute {
	open := r.Protocol != protocol
	v.Gateway = addrOf(r.Gw)
	if v.Source.IsValid() || !open {
		v.Source = addrOf(r.Src)
	}
	if v.MTU != 0 || !open {
		v.MTU = r.MTU
	}
	return v
}

func kernelRoute(l netlink.Link, v wire.LinuxRoute, table int) *netlink.Route {
	r := &netlink.Route{
		LinkIndex: l.Attrs().Index, Dst: ipNet(v.Destination), MTU: v.MTU, Protocol: protocol, Table: table,
	}
	if v.Source.IsValid() {
		r.Src = v.Source.AsSlice()
	}
	if !v.Gateway.IsValid() {
		r.Scope = netlink.SCOPE_LINK
		return r
	}
	r.Gw = v.Gateway.AsSlice()
	if !v.Gateway.Is6() || !v.Gateway.IsLinkLocalUnicast() {
		r.SetFlag(netlink.FLAG_ONLINK) // the gateway is in no prefix of ours: pods have a /32
	}
	return r
}
