package linux

import (
	"errors"
	"fmt"
	"math"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// protocol identifies Weft's routes in the kernel (rtnetlink(7), rtm_protocol).
const protocol = 201

// routes has the functions of routes that consider the changes of later plugins.
type routes struct{ changes *ChainChanges }

func (s routes) table(v wire.LinuxRoute) (table int, removed bool) {
	return s.changes.of(parseRef(v.On).Name).table(v)
}

func routeDescriptor(o Options) kvscheduler.Descriptor[wire.LinuxRoute, netnsID] {
	s := routes{o.ChainChanges}
	d := onLink(kvscheduler.Follow, func(v wire.LinuxRoute) (on, namespace string) { return v.On, v.Namespace },
		namespaced[wire.LinuxRoute]{
			kind:   wire.KindLinuxRoute,
			put:    s.add,
			remove: s.remove,
			find:   s.find,
			list:   listRoutes,
			link:   func(v wire.LinuxRoute) string { return v.Link },

			needsIPv6: func(v wire.LinuxRoute) bool { return v.Destination.Addr().Is6() },
			overfull:  o.Overfull,
		})
	d.Validate = validateRoute
	d.Recreate = always
	onLink := d.Deps
	d.Deps = func(name string, v wire.LinuxRoute) []kvscheduler.Dep {
		return append(onLink(name, v), sourceDeps(v)...)
	}
	return d
}

func validateRoute(name string, v wire.LinuxRoute) error {
	is4 := v.Destination.Addr().Is4()
	switch {
	case !v.Destination.IsValid() || v.Destination != v.Destination.Masked():
		return fmt.Errorf("destination %s is not masked", v.Destination)
	case v.Gateway.IsValid() && v.Gateway.Is4() != is4:
		return fmt.Errorf("gateway %s and destination %s are of different families", v.Gateway, v.Destination)
	case v.Source.IsValid() && v.Source.Is4() != is4:
		return fmt.Errorf("source %s and destination %s are of different families", v.Source, v.Destination)
	case v.MTU < 0:
		return fmt.Errorf("MTU %d is negative", v.MTU)
	case v.Metric < 0 || v.Metric > math.MaxInt32:
		return fmt.Errorf("metric %d is not within 0 and %d", v.Metric, math.MaxInt32)
	case v.Metric == metric6 && !is4:
		return fmt.Errorf("metric %d is the kernel's default of IPv6, which has the name 0", v.Metric)
	}
	return validateOn(v.On, v.Link, name, v.Key())
}

// sourceDeps returns the dependency on the preferred source: the kernel accepts only an address of the namespace.
func sourceDeps(v wire.LinuxRoute) []kvscheduler.Dep {
	if !v.Source.IsValid() {
		return nil
	}
	return []kvscheduler.Dep{{Label: "source address", Any: &kvscheduler.Select{
		Kind: wire.KindLinuxAddress, Bucket: v.On,
		Match: func(_ string, a any) bool { return a.(wire.LinuxAddress).Prefix.Addr() == v.Source },
	}}}
}

// add does not replace foreign routes to the same destination. A foreign route with the same next hop counts as the
// object, another one is a permanent error.
func (s routes) add(h *handle, v wire.LinuxRoute) error {
	l, err := h.linkFor(v.Link, v.Destination.Addr())
	if err != nil {
		return refused(err)
	}
	table, removed := s.table(v)
	if removed {
		return nil
	}
	found, err := routesIn(h, table, v.Destination)
	if err != nil {
		return refused(err)
	}
	for _, r := range found {
		if standsBeside(r, v) {
			continue
		}
		if isOutdated(r, l, v) {
			if err := h.RouteDel(&r); err != nil {
				return refused(fmt.Errorf("delete route to %s %s of an earlier configuration: %w", v.Destination,
					h.nextHop(r), err))
			}
			continue
		}
		if !hasNextHop(r, l, v) {
			return permanent(fmt.Errorf("add route to %s through %s: a %s %s already exists", v.Destination, v.Link,
				routeName(v.Destination), h.nextHop(r)))
		}
		if fromKernel(r, v) == v {
			return nil
		}
	}
	err = h.RouteAdd(kernelRoute(l, v, table))
	if errors.Is(err, unix.EEXIST) {
		err = fmt.Errorf("a route with the same next hop has another source or MTU: %w", err)
	}
	if err != nil {
		return refused(fmt.Errorf("add route to %s through %s: %w", v.Destination, v.Link, err))
	}
	return nil
}

// isOutdated reports whether an agent with an earlier configuration made a route. Only the node's namespace has such
// routes, since only there no two objects have a route to the same destination.
func isOutdated(r netlink.Route, l netlink.Link, v wire.LinuxRoute) bool {
	return v.Namespace == "" && r.Protocol == protocol && !hasNextHop(r, l, v)
}

func routeName(destination netip.Prefix) string {
	if destination.Bits() == 0 {
		return "default route"
	}
	return "route"
}

// nextHop describes link and gateway of a route.
func (s *socket) nextHop(r netlink.Route) string {
	text := "without a link"
	if l, err := s.LinkByIndex(r.LinkIndex); err == nil {
		text = "through " + l.Attrs().Name
	}
	if len(r.Gw) > 0 {
		text += " via " + r.Gw.String()
	}
	return text
}

func hasNextHop(r netlink.Route, l netlink.Link, v wire.LinuxRoute) bool {
	return r.LinkIndex == l.Attrs().Index && addrOf(r.Gw) == v.Gateway && r.Type == unix.RTN_UNICAST
}

// routesIn lists the routes to exactly that destination in a table.
func routesIn(h *handle, table int, destination netip.Prefix) ([]netlink.Route, error) {
	filter := &netlink.Route{Table: table}
	list, err := h.RouteListFiltered(family(destination.Addr().Is4()), filter, netlink.RT_FILTER_TABLE)
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

// metric6 is the kernel's metric of IPv6 routes without one (IP6_RT_PRIO_USER in linux/ipv6_route.h).
const metric6 = 1024

// metricOf returns the metric of a route of the kernel; 0 for the default of its family.
func metricOf(r netlink.Route) int {
	if r.Priority == metric6 && r.Family == netlink.FAMILY_V6 {
		return 0
	}
	return r.Priority
}

// standsBeside reports whether the kernel has a route to the destination of v beside v: another object's route, or one
// of another metric that the pod's network or options ask for.
func standsBeside(r netlink.Route, v wire.LinuxRoute) bool {
	return metricOf(r) != v.Metric && (r.Protocol == protocol || v.Metric != 0)
}

func (s routes) remove(h *handle, v wire.LinuxRoute) error {
	l, err := h.link(v.Link)
	table, removed := s.table(v)
	if err != nil || removed {
		return err
	}
	// The protocol of the request protects a foreign route with the same next hop.
	return h.RouteDel(kernelRoute(l, v, table))
}

func (s routes) find(h *handle, v wire.LinuxRoute) (wire.LinuxRoute, bool, error) {
	l, err := h.link(v.Link)
	table, removed := s.table(v)
	if err != nil || removed {
		return v, removed && err == nil, err
	}
	found, err := routesIn(h, table, v.Destination)
	for _, r := range found {
		if !standsBeside(r, v) && r.LinkIndex == l.Attrs().Index && (r.Protocol == protocol || hasNextHop(r, l, v)) {
			return fromKernel(r, v), true, err
		}
	}
	if err == nil && s.changes.of(parseRef(v.On).Name).Open {
		_, moved, err := movedTo(h, l, v)
		return v, moved, err
	}
	return v, false, err
}

// listRoutes lists Weft's routes.
func listRoutes(h *handle, l netlink.Link, v wire.LinuxRoute) (map[string]wire.LinuxRoute, error) {
	filter := &netlink.Route{LinkIndex: l.Attrs().Index, Protocol: protocol, Table: unix.RT_TABLE_MAIN}
	list, err := h.RouteListFiltered(netlink.FAMILY_ALL, filter,
		netlink.RT_FILTER_OIF|netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TABLE)
	found := map[string]wire.LinuxRoute{}
	for _, r := range list {
		v.Destination = destinationOf(r)
		v.Metric = metricOf(r)
		found[parseRef(v.Key()).Name] = fromKernel(r, v)
	}
	return found, err
}

// destinationOf returns the destination of a route. The library has no destination for a default route.
func destinationOf(r netlink.Route) netip.Prefix {
	if p := prefixOf(r.Dst); p.IsValid() {
		return p
	}
	if r.Family == netlink.FAMILY_V4 {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

// fromKernel converts a route of the kernel on the link of v. A foreign route may have any source and MTU if v does not
// have them.
func fromKernel(r netlink.Route, v wire.LinuxRoute) wire.LinuxRoute {
	foreign := r.Protocol != protocol
	v.Gateway = addrOf(r.Gw)
	if v.Source.IsValid() || !foreign {
		v.Source = addrOf(r.Src)
	}
	if v.MTU != 0 || !foreign {
		v.MTU = r.MTU
	}
	return v
}

func kernelRoute(l netlink.Link, v wire.LinuxRoute, table int) *netlink.Route {
	r := &netlink.Route{
		LinkIndex: l.Attrs().Index, Dst: ipNet(v.Destination), MTU: v.MTU, Protocol: protocol, Table: table,
		Priority: v.Metric,
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
		r.SetFlag(netlink.FLAG_ONLINK) // a pod's /32 address does not include the gateway
	}
	return r
}
