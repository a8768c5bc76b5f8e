package attach

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/pod"
)

// routing adds the routes that networks and options request to the interfaces of one pod. A route that the pod requests
// must be possible; a network's route is left out where it cannot be, because it is for all pods of the network: the
// router itself gets no route to itself.
type routing struct {
	request    *pod.Request
	specs      []spec
	interfaces []pod.Interface // of the specs, in the same order
	siblings   []*pod.Attachment
	pods       network // the network default
}

// add adds the routes, those of options first: they precede the routes of networks.
func (r *routing) add() error {
	for at, s := range r.specs {
		for _, q := range r.requestedBy(at, s) {
			if err := r.addRequested(at, q); err != nil {
				return pod.Errorf(pod.CodeInvalidAnnotation, "%s: %s: interface %s: route %s: %w",
					r.request, s.source.options, s.name, q, err)
			}
		}
	}
	for at, s := range r.specs {
		if s.network.custom == nil {
			continue
		}
		for _, q := range s.network.custom.Network.Routes {
			if err := r.addOfNetwork(at, q); err != nil {
				return pod.Errorf(pod.CodeInvalidAnnotation, "%s: interface %s: route %s of network %s: %w", r.request,
					s.name, q, s.network.name, err)
			}
		}
	}
	return nil
}

// requestedBy lists the routes of an interface's options. The default routes among them lead to the routers that the
// options name, or to the gateway in each family of its addresses. Later a router is refused if the interface has no
// address of its family.
func (r *routing) requestedBy(at int, s spec) []pod.RouteRequest {
	routes := slices.Clone(s.routes.requested)
	if !s.routes.wantsDefault {
		return routes
	}
	for _, via := range s.routes.gateway.Addresses {
		routes = append(routes, pod.RouteRequest{To: everywhere(via), Via: via})
	}
	if s.routes.gateway.IsZero() {
		for _, p := range r.interfaces[at].Addresses {
			routes = append(routes, pod.RouteRequest{To: everywhere(p.Addr())})
		}
	}
	return routes
}

// everywhere returns the prefix of all addresses in the family of an address.
func everywhere(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, 0).Masked() }

// addRequested adds a route of the options of an interface.
func (r *routing) addRequested(at int, q pod.RouteRequest) error {
	through, err := r.through(at, q)
	if err != nil {
		return err
	}
	route, err := r.resolve(through, q)
	if err != nil {
		return err
	}
	return r.put(through, route)
}

// addOfNetwork adds a route of the network of an interface. It is left out if the options of the pod have a route to
// its destination, if the pod is connected to the destination or is the next hop itself, if it has no address of the
// family, or if another interface of the pod on this network has the route.
func (r *routing) addOfNetwork(at int, q pod.RouteRequest) error {
	through := at
	if q.Interface != "" {
		if through = r.named(q.Interface); through < 0 {
			return nil
		}
	}
	own := r.interfaces[through]
	isNextHop := slices.ContainsFunc(own.Addresses, func(p netip.Prefix) bool { return p.Addr() == q.Via })
	if isNextHop || !hasFamilyOf(own, q.To.Addr()) || r.connectedTo(through, q.To) != "" || r.isRequested(through, q) ||
		r.hasOfNetwork(through, q) {
		return nil
	}
	route, err := r.resolve(through, q)
	if err != nil {
		return err
	}
	return r.put(through, route)
}

// through returns the index of the interface that a route leads through.
func (r *routing) through(at int, q pod.RouteRequest) (int, error) {
	if q.Interface == "" {
		return at, nil
	}
	if through := r.named(q.Interface); through >= 0 {
		return through, nil
	}
	return 0, fmt.Errorf("the pod has no interface %s that Weft connects with this one", q.Interface)
}

func (r *routing) named(name string) int {
	isNamed := func(i pod.Interface) bool { return i.Name == name && i.Type != pod.TypeIPAM }
	return slices.IndexFunc(r.interfaces, isNamed)
}

// resolve returns the route of an interface with its next hop.
func (r *routing) resolve(through int, q pod.RouteRequest) (pod.Route, error) {
	own := r.interfaces[through]
	route := pod.Route{Destination: q.To, Gateway: q.Via, Metric: q.Metric}
	switch {
	case !hasFamilyOf(own, q.To.Addr()):
		return route, fmt.Errorf("interface %s has no address of this family", own.Name)
	case r.connectedTo(through, q.To) != "":
		return route, fmt.Errorf("the pod is connected to it by interface %s", r.connectedTo(through, q.To))
	case !q.Via.IsValid():
		route.Gateway = gatewayOf(own, q.To.Addr())
		if !route.Gateway.IsValid() && q.Interface == "" {
			return route, fmt.Errorf("network %s has no gateway of this family: name the next hop", own.Network)
		}
		return route, nil
	case slices.ContainsFunc(own.Addresses, func(p netip.Prefix) bool { return p.Addr() == q.Via }):
		return route, fmt.Errorf("%s is the interface's own address", q.Via)
	case q.Via != gatewayOf(own, q.To.Addr()) && !isOnLink(own, q.Via):
		return route, fmt.Errorf("%s is not on the link of interface %s", q.Via, own.Name)
	}
	return route, nil
}

// put adds a route to an interface. A default route without metric takes the place of the main interface's, whose
// network stays reachable through it. The program of a memif has routes of its own.
func (r *routing) put(through int, route pod.Route) error {
	own := &r.interfaces[through]
	if own.Memif != nil {
		if at := slices.IndexFunc(own.Routes, route.IsAlike); at >= 0 {
			own.Routes[at] = route
			return nil
		}
		own.Routes = append(own.Routes, route)
		return nil
	}
	if holder := r.siblingWith(route); holder != "" {
		return fmt.Errorf("interface %s has a route to this destination; give this one another metric", holder)
	}
	for at := range r.interfaces {
		other := &r.interfaces[at]
		has := slices.IndexFunc(other.Routes, route.IsAlike)
		switch {
		case other.Memif != nil || has < 0:
		case other.Routes[has] == route && at == through:
			return nil
		case !r.isChosenByWeft(at, route):
			return fmt.Errorf("interface %s has a route to this destination; give one of them another metric",
				other.Name)
		default:
			other.Routes = slices.Delete(other.Routes, has, has+1)
			if at != through {
				r.leadToPods(other, route.Destination)
			}
		}
	}
	own.Routes = append(own.Routes, route)
	return nil
}

// isChosenByWeft reports whether the route of an interface to a destination is not requested, but one that Weft gives
// to each pod.
func (r *routing) isChosenByWeft(at int, route pod.Route) bool {
	routes := r.specs[at].routes
	isForeign := func(f pod.Route) bool { return f.Destination == route.Destination }
	return routes.isDefault && route.Destination.Bits() == 0 && route.Metric == 0 &&
		!slices.ContainsFunc(routes.foreign, isForeign)
}

// leadToPods gives an interface of the network default, which loses its default route, routes to the network.
func (r *routing) leadToPods(i *pod.Interface, lost netip.Prefix) {
	gateway := gatewayOf(*i, lost.Addr())
	for _, p := range r.pods.pools() {
		if p.Prefix.Addr().Is4() == lost.Addr().Is4() {
			i.Routes = append(i.Routes, pod.Route{Destination: p.Prefix, Gateway: gateway})
		}
	}
}

// siblingWith returns the interface of another attachment of the sandbox that has a route to the same destination; ""
// if there is none.
func (r *routing) siblingWith(route pod.Route) string {
	for _, a := range r.siblings {
		for _, i := range a.Interfaces {
			if i.Memif == nil && slices.ContainsFunc(i.Routes, route.IsAlike) {
				return i.Name
			}
		}
	}
	return ""
}

// connectedTo returns the interface whose subnet is the destination; "" if there is none. The program of a memif sees
// its own subnet only.
func (r *routing) connectedTo(through int, destination netip.Prefix) string {
	isSubnet := func(p netip.Prefix) bool { return p.Masked() == destination }
	for at, i := range r.interfaces {
		isOther := at != through && (i.Memif != nil || r.interfaces[through].Memif != nil)
		if !isOther && (slices.ContainsFunc(i.Addresses, isSubnet) || slices.Contains(i.RoutedPrefixes, destination)) {
			return i.Name
		}
	}
	return ""
}

// isRequested reports whether the options of the pod request a route to the destination of a network's route.
func (r *routing) isRequested(through int, q pod.RouteRequest) bool {
	route := pod.Route{Destination: q.To, Metric: q.Metric}
	for at, i := range r.interfaces {
		isSame := at == through || i.Memif == nil && r.interfaces[through].Memif == nil
		if !isSame {
			continue
		}
		for _, has := range i.Routes {
			if has.IsAlike(route) && !r.isChosenByWeft(at, has) && !r.isOfNetwork(at, has) {
				return true
			}
		}
	}
	return false
}

// hasOfNetwork reports whether the kernel of the pod has a route of the network through another interface on it.
func (r *routing) hasOfNetwork(through int, q pod.RouteRequest) bool {
	own := r.interfaces[through]
	if own.Memif != nil {
		return false
	}
	route := pod.Route{Destination: q.To, Metric: q.Metric}
	has := func(i pod.Interface) bool {
		isBeside := i.Memif == nil && i.Name != own.Name && i.Network == own.Network
		return isBeside && slices.ContainsFunc(i.Routes, route.IsAlike)
	}
	return slices.ContainsFunc(r.interfaces, has) || slices.ContainsFunc(r.siblings, func(a *pod.Attachment) bool {
		return slices.ContainsFunc(a.Interfaces, has)
	})
}

// isOfNetwork reports whether the network of an interface requests a route.
func (r *routing) isOfNetwork(at int, route pod.Route) bool {
	custom := r.specs[at].network.custom
	return custom != nil && slices.ContainsFunc(custom.Network.Routes, func(q pod.RouteRequest) bool {
		return q.To == route.Destination && q.Metric == route.Metric && (!q.Via.IsValid() || q.Via == route.Gateway)
	})
}

func hasFamilyOf(i pod.Interface, a netip.Addr) bool {
	return desired.HasFamily(i.Addresses, netaddr.FamilyOf(a))
}

// gatewayOf returns the gateway of an interface in the family of an address; invalid if it has none.
func gatewayOf(i pod.Interface, a netip.Addr) netip.Addr {
	for _, g := range i.Gateways {
		if g.IsValid() && g.Is4() == a.Is4() {
			return g
		}
	}
	return netip.Addr{}
}

// isOnLink reports whether an address is in a subnet of the interface.
func isOnLink(i pod.Interface, a netip.Addr) bool {
	isIn := func(p netip.Prefix) bool { return !p.IsSingleIP() && p.Contains(a) }
	return a.Is6() && a.IsLinkLocalUnicast() || slices.ContainsFunc(i.Addresses, isIn)
}
