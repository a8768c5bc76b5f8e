package pod

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weftnet/weft/internal/jsonempty"
	"github.com/weftnet/weft/internal/netaddr"
)

// RouteRequest is a route that pods get: by a network, or by the options of an interface.
type RouteRequest struct {
	To  netip.Prefix `json:"to"`           // masked
	Via netip.Addr   `json:"via,omitzero"` // next hop, on the link of the interface; invalid: the interface's gateway

	// Interface is the interface of the pod that the route leads through; "": the one that requests it.
	Interface string `json:"interface,omitempty"`
	Metric    int    `json:"metric,omitempty"` // of routes to one destination the lowest is used
}

// MaxMetric is the highest metric of a route. The kernel reserves none; signed numbers of 32 bits hold it.
const MaxMetric = 1<<31 - 1

// IsDefault reports whether the route leads everywhere.
func (r RouteRequest) IsDefault() bool { return r.To.Bits() == 0 }

// String returns the route in the words of ip-route(8).
func (r RouteRequest) String() string {
	text := r.To.String()
	if r.Via.IsValid() {
		text += " via " + r.Via.String()
	}
	if r.Interface != "" {
		text += " dev " + r.Interface
	}
	if r.Metric > 0 {
		text += fmt.Sprintf(" metric %d", r.Metric)
	}
	return text
}

// Validate rejects a route that is invalid on all networks.
func (r RouteRequest) Validate() error {
	switch {
	case !r.To.IsValid() || r.To.Addr().Is4In6():
		return errors.New("to: a destination such as 10.2.0.0/16 is required")
	case r.To != r.To.Masked():
		return fmt.Errorf("to: %s has host bits set, did you mean %s?", r.To, r.To.Masked())
	case r.To.Addr().IsMulticast() || r.To.Addr().IsLoopback() || r.To.Addr().Is6() && r.To.Addr().IsLinkLocalUnicast():
		return fmt.Errorf("to: %s is not a range of unicast addresses that is routed", r.To)
	case r.Via.IsValid() && r.Via.Is4() != r.To.Addr().Is4():
		return fmt.Errorf("via: %s and %s are of different families", r.Via, r.To)
	case r.Via.IsValid() && !isHost(r.Via):
		return fmt.Errorf("via: %s cannot be the address of a router", r.Via)
	case r.Via.IsValid() && r.Interface != "":
		return errors.New("via and interface exclude each other: the route through another interface uses its gateway")
	case r.Interface != "" && !IsLinkName(r.Interface):
		return fmt.Errorf("interface: %.80q: %s", r.Interface, invalidLinkName)
	case r.Metric < 0 || r.Metric > MaxMetric:
		return fmt.Errorf("metric: %d is not within 0 and %d", r.Metric, MaxMetric)
	case r.Metric == defaultMetric6 && r.To.Addr().Is6():
		return fmt.Errorf("metric: the kernel gives %d to IPv6 routes without a metric: leave it out", r.Metric)
	}
	return nil
}

// defaultMetric6 is the kernel's metric of IPv6 routes without one (IP6_RT_PRIO_USER in linux/ipv6_route.h).
const defaultMetric6 = 1024

// isHost reports whether an address can be that of one host.
func isHost(a netip.Addr) bool {
	return a.IsValid() && !a.Is4In6() && a.Zone() == "" &&
		!a.IsMulticast() && !a.IsLoopback() && !a.IsUnspecified()
}

// validateRoutes rejects invalid routes, too many, and two for one destination.
func validateRoutes(routes []RouteRequest) error {
	if len(routes) > MaxRoutes {
		return fmt.Errorf("%d routes, at most %d are possible", len(routes), MaxRoutes)
	}
	type place struct {
		to     netip.Prefix
		metric int
	}
	seen := make(map[place]RouteRequest)
	for _, r := range routes {
		if err := r.Validate(); err != nil {
			return err
		}
		at := place{r.To, r.Metric}
		if other, twice := seen[at]; twice {
			return fmt.Errorf("%s and %s have the same destination and metric", other, r)
		}
		seen[at] = r
	}
	return nil
}

// parseRoutes parses a JSON list of routes.
func parseRoutes(raw json.RawMessage) ([]RouteRequest, error) {
	var items []json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil {
		return nil, fmt.Errorf(`expected a JSON list such as [{"to": "10.2.0.0/16", "via": "10.1.0.9"}], not %.300q`, raw)
	}
	var routes []RouteRequest
	for i, item := range items {
		r, err := parseRoute(item)
		if err != nil {
			return nil, fmt.Errorf("route %d: %w", i+1, err)
		}
		routes = append(routes, r)
	}
	return routes, validateRoutes(routes)
}

func parseRoute(raw json.RawMessage) (r RouteRequest, err error) {
	keys, err := members(raw)
	if err != nil {
		return r, err
	}
	for _, key := range keys {
		if jsonempty.Is(key.value) {
			continue
		}
		switch key.name {
		case "to":
			r.To, err = parseDestination(key.value)
		case "via":
			r.Via, err = parseAddr(key.value)
		case "interface":
			err = parseString(&r.Interface, key.value)
		case "metric":
			err = interval{0, MaxMetric, "metric"}.parse(&r.Metric, key.value)
		default:
			err = errors.New("unknown key; known are to, via, interface and metric")
		}
		if err != nil {
			return r, fmt.Errorf("%.80s: %w", key.name, err)
		}
	}
	return r, r.Validate()
}

// parseDestination parses a prefix, or "default" as ip-route(8) has it. The family of the default route is that of its
// next hop, so a route without one names the prefix.
func parseDestination(raw json.RawMessage) (netip.Prefix, error) {
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return netip.Prefix{}, fmt.Errorf("expected a destination such as 10.2.0.0/16, not %.300q", raw)
	}
	p, err := ParseAddress(text)
	if err != nil {
		return p, fmt.Errorf("%.80q is not a destination such as 10.2.0.0/16 or fd00:2::/64", text)
	}
	return p, nil
}

func parseAddr(raw json.RawMessage) (netip.Addr, error) {
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return netip.Addr{}, fmt.Errorf("expected an address, not %.300q", raw)
	}
	a, err := netip.ParseAddr(text)
	if err != nil {
		return a, fmt.Errorf("%.80q is not an address", text)
	}
	return a, nil
}

// Gateway is the dataplane's address on a network, or the next hop of a pod's default route: at most one address of
// each family. The zero value leaves the choice to Weft.
type Gateway struct {
	None      bool         // the dataplane has no address on the network
	Addresses []netip.Addr // IPv4 first
}

// noGateway is the text of a network without a gateway.
const noGateway = "none"

// ParseGateway parses "none" or one address of each family, separated by a comma; "" is the zero value.
func ParseGateway(text string) (Gateway, error) {
	switch text {
	case "":
		return Gateway{}, nil
	case noGateway:
		return Gateway{None: true}, nil
	}
	var g Gateway
	for item := range strings.SplitSeq(text, ",") {
		a, err := netip.ParseAddr(strings.TrimSpace(item))
		if err != nil || !isHost(a) {
			return Gateway{}, fmt.Errorf("%.80q is neither none nor the address of a host", item)
		}
		if g.Of(a.Is4()).IsValid() {
			return Gateway{}, fmt.Errorf("%s is the second address of its family, one each is possible", a)
		}
		g.Addresses = append(g.Addresses, a)
	}
	slices.SortFunc(g.Addresses, netip.Addr.Compare)
	return g, nil
}

// Of returns the address of a family; invalid if there is none.
func (g Gateway) Of(is4 bool) netip.Addr {
	for _, a := range g.Addresses {
		if a.Is4() == is4 {
			return a
		}
	}
	return netip.Addr{}
}

// IsZero reports whether Weft chooses.
func (g Gateway) IsZero() bool { return !g.None && len(g.Addresses) == 0 }

// String returns the form that ParseGateway accepts.
func (g Gateway) String() string {
	if g.None {
		return noGateway
	}
	var texts []string
	for _, a := range g.Addresses {
		texts = append(texts, a.String())
	}
	return strings.Join(texts, ",")
}

// MarshalText implements encoding.TextMarshaler.
func (g Gateway) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (g *Gateway) UnmarshalText(text []byte) (err error) {
	*g, err = ParseGateway(string(text))
	return err
}

// invalidSite says why the gateway, the ranges or the routes do not suit the network's CIDRs; "" if they do.
func (n *Network) invalidSite() string {
	for _, check := range []func() error{n.checkGateway, n.checkRanges, n.checkRoutes, n.checkMoving, n.checkRouted,
		n.checkDNS, n.checkVLANs} {
		if err := check(); err != nil {
			return err.Error()
		}
	}
	return ""
}

// cidrOf returns the network's CIDR of a family; invalid if it has none.
func (n *Network) cidrOf(is4 bool) netip.Prefix {
	for _, p := range n.CIDRs {
		if p.Addr().Is4() == is4 {
			return p
		}
	}
	return netip.Prefix{}
}

// GatewayIn returns the dataplane's address in a CIDR of the network; invalid if it has none.
func (n *Network) GatewayIn(cidr netip.Prefix) netip.Addr {
	if n.Gateway.None || !cidr.IsValid() {
		return netip.Addr{}
	}
	if a := n.Gateway.Of(cidr.Addr().Is4()); a.IsValid() {
		return a
	}
	return cidr.Masked().Addr().Next()
}

func (n *Network) checkGateway() error {
	switch {
	case n.Gateway.None && n.Type == L3:
		return errors.New("gateway: a network of type L3 needs one: the dataplane routes between its pods")
	case !n.Gateway.IsZero() && len(n.CIDRs) == 0:
		return errors.New("gateway: only a network with cidrs has one")
	}
	for _, a := range n.Gateway.Addresses {
		if !isHostIn(a, n.cidrOf(a.Is4())) {
			return fmt.Errorf("gateway: %s is not the address of a host in the cidrs", a)
		}
	}
	return nil
}

// isLinkLocal6 reports whether an address is one that each IPv6 router has on each link.
func isLinkLocal6(a netip.Addr) bool { return a.Is6() && a.IsLinkLocalUnicast() }

// isHostIn reports whether an address of a prefix can be a host's.
func isHostIn(a netip.Addr, in netip.Prefix) bool {
	if !in.Contains(a) {
		return false
	}
	isBroadcast := a.Is4() && a == netaddr.Last(in)
	return a != in.Masked().Addr() && !isBroadcast
}

func (n *Network) checkRanges() error {
	for _, list := range []struct {
		name   string
		ranges netaddr.Ranges
	}{{"reserved", n.Reserved}, {"excluded", n.Excluded}} {
		for _, r := range list.ranges {
			if !r.Within(n.cidrOf(r.First.Is4())) {
				return fmt.Errorf("%s: %s is not within the cidrs", list.name, r)
			}
		}
	}
	return nil
}

func (n *Network) checkRoutes() error {
	if n.Direct && len(n.Routes) > 0 {
		return errors.New("routes: pods of a direct network have their own")
	}
	if err := validateRoutes(n.Routes); err != nil {
		return fmt.Errorf("routes: %w", err)
	}
	for _, r := range n.Routes {
		if err := n.Leads(r); err != nil {
			return fmt.Errorf("routes: %w", err)
		}
	}
	return nil
}

// leadsAll rejects routes of the options of an interface that no packet can take.
func (n *Network) leadsAll(o InterfaceOptions) error {
	for _, r := range o.Routes {
		if err := n.Leads(r); err != nil {
			return fmt.Errorf("routes: %w", err)
		}
	}
	if !o.IsDefault() {
		return nil
	}
	if n.Name == StubNetwork {
		return errors.New("defaultRoute: the network stub leads nowhere")
	}
	if o.Gateway.IsZero() && n.Type == L2 && (n.Gateway.None || len(n.CIDRs) == 0) {
		return fmt.Errorf("defaultRoute: network %s has no gateway: name a router by the option gateway", n.Name)
	}
	for _, a := range o.Gateway.Addresses {
		if err := n.Leads(RouteRequest{To: netip.PrefixFrom(a, 0).Masked(), Via: a}); err != nil {
			return fmt.Errorf("gateway: %w", err)
		}
	}
	return nil
}

// Leads rejects a route of an interface of the network that no packet can take. n is the network of the interface that
// requests it.
func (n *Network) Leads(r RouteRequest) error {
	cidr := n.cidrOf(r.To.Addr().Is4())
	switch {
	case r.Interface != "": // its network decides
	case n.Name == StubNetwork:
		return fmt.Errorf("%s: the network stub leads nowhere", r)
	case r.Via.IsValid() && n.Type != L2 && r.Via != n.GatewayIn(cidr):
		return fmt.Errorf("%s: the dataplane routes the packets of network %s: leave out via, or use a network of type L2",
			r, n.Name)
	case r.Via.IsValid() && len(n.CIDRs) > 0 && !isLinkLocal6(r.Via) && !isHostIn(r.Via, cidr):
		return fmt.Errorf("%s: via is not the address of a host in the cidrs of network %s", r, n.Name)
	case !r.Via.IsValid() && n.Type == L2 && !n.GatewayIn(cidr).IsValid():
		return fmt.Errorf("%s: network %s has no gateway of this family: name the next hop by via", r, n.Name)
	case cidr.IsValid() && r.To == cidr:
		return fmt.Errorf("%s: this is the network itself", r)
	}
	return nil
}
