package cni

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	cniversion "github.com/containernetworking/cni/pkg/version"

	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// prevResult returns the result of the plugins before this one; nil without one.
func (c *conf) prevResult() (*types100.Result, error) {
	if c.RawPrevResult == nil {
		return nil, nil
	}
	err := cniversion.ParsePrevResult(&c.PluginConf)
	if err == nil {
		var result *types100.Result
		if result, err = latest(c.PrevResult); err == nil {
			return result, nil
		}
	}
	return nil, fmt.Errorf("prevResult: %w", err)
}

var errIncomplete = errors.New("an interface, address or route is null or empty")

// latest converts a result to the latest version. The library accepts null and empty elements, or panics.
func latest(r types.Result) (_ *types100.Result, err error) {
	defer func() {
		if recover() != nil {
			err = errIncomplete
		}
	}()
	result, err := types100.NewResultFromResult(r)
	if err != nil {
		return nil, err
	}
	if slices.Contains(result.Interfaces, nil) ||
		slices.ContainsFunc(result.IPs, func(ip *types100.IPConfig) bool {
			return ip == nil || ip.Address.IP == nil
		}) ||
		slices.ContainsFunc(result.Routes, func(r *types.Route) bool { return r == nil || r.Dst.IP == nil }) {
		return nil, errIncomplete
	}
	return result, nil
}

// resultOf appends the agent's reply to prev. The result of weft-ipam has no interfaces.
func (c *call) resultOf(prev *types100.Result, reply *weftv1.AddReply) (*types100.Result, error) {
	result := &types100.Result{CNIVersion: types100.ImplementedSpecVersion, DNS: c.dnsOf(prev, reply)}
	if prev != nil {
		result.Interfaces = prev.Interfaces
		result.IPs = prev.IPs
		result.Routes = prev.Routes
	}
	before := len(result.Interfaces)
	for _, in := range reply.GetInterfaces() {
		if !c.ipam {
			result.Interfaces = append(result.Interfaces, interfaceOf(c.conf.CNIVersion, in))
		}
	}
	for _, ip := range reply.GetIps() {
		config, err := ipOf(ip)
		if err != nil {
			return nil, err
		}
		switch {
		case c.ipam:
		case int(ip.GetInterface()) >= len(reply.GetInterfaces()):
			return nil, fmt.Errorf("address %s has interface index %d, and there are %d interfaces", ip.GetAddress(),
				ip.GetInterface(), len(reply.GetInterfaces()))
		default:
			config.Interface = types100.Int(before + int(ip.GetInterface()))
		}
		result.IPs = append(result.IPs, config)
	}
	for _, r := range reply.GetRoutes() {
		route, err := routeOf(c.conf.CNIVersion, r)
		if err != nil {
			return nil, err
		}
		result.Routes = append(result.Routes, route)
	}
	if c.ipam {
		result.Routes = append(result.Routes, withGateways(c.conf.Routes, result.IPs)...)
	}
	return result, nil
}

// withGateways sets a missing gateway to the gateway of the address of the same family: a CHECK of another plugin
// compares the kernel's routes with the result.
func withGateways(routes []*types.Route, ips []*types100.IPConfig) []*types.Route {
	for _, r := range routes {
		for _, ip := range ips {
			if r.GW == nil && (ip.Address.IP.To4() == nil) == (r.Dst.IP.To4() == nil) {
				r.GW = ip.Gateway
			}
		}
	}
	return routes
}

// dnsOf returns the DNS of the network for which the pod asks. Otherwise it keeps the DNS of an earlier plugin. The
// configuration takes precedence over a third-party IPAM plugin.
func (c *call) dnsOf(prev *types100.Result, reply *weftv1.AddReply) types.DNS {
	d := reply.GetDns()
	switch {
	case reply.GetNetworkDns() != nil:
		d = reply.GetNetworkDns()
	case prev != nil && (c.mode() == modeChained || !prev.DNS.IsEmpty()):
		return prev.DNS
	case !c.ipam && !c.conf.DNS.IsEmpty():
		return c.conf.DNS
	}
	return types.DNS{
		Nameservers: d.GetNameservers(),
		Domain:      d.GetDomain(),
		Search:      d.GetSearch(),
		Options:     d.GetOptions(),
	}
}

// interfaceOf sets members of version 1.1.0 only in that version: the library prints them in 1.0.0 too.
func interfaceOf(version string, in *weftv1.Interface) *types100.Interface {
	i := &types100.Interface{Name: in.GetName(), Mac: in.GetMac(), Sandbox: in.GetSandbox()}
	if knowsDetails(version) {
		i.Mtu = int(in.GetMtu())
		i.SocketPath = in.GetSocketPath()
	}
	return i
}

// knowsDetails reports whether a version of CNI has MTUs, paths of sockets, and priorities of routes.
func knowsDetails(version string) bool {
	ok, err := cniversion.GreaterThanOrEqualTo(version, "1.1.0")
	return ok && err == nil
}

func ipOf(ip *weftv1.IP) (*types100.IPConfig, error) {
	prefix, err := netip.ParsePrefix(ip.GetAddress())
	if err != nil {
		return nil, fmt.Errorf("address of the reply: %w", err)
	}
	gateway, err := gatewayOf(ip.GetGateway())
	return &types100.IPConfig{Address: netOf(prefix), Gateway: gateway}, err
}

func routeOf(version string, r *weftv1.Route) (*types.Route, error) {
	prefix, err := netip.ParsePrefix(r.GetDestination())
	if err != nil {
		return nil, fmt.Errorf("route of the reply: %w", err)
	}
	gateway, err := gatewayOf(r.GetGateway())
	route := &types.Route{Dst: netOf(prefix), GW: gateway}
	if knowsDetails(version) {
		route.Priority = int(r.GetMetric())
	}
	return route, err
}

func gatewayOf(text string) (net.IP, error) {
	if text == "" {
		return nil, nil
	}
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return nil, fmt.Errorf("gateway of the reply: %w", err)
	}
	return addr.AsSlice(), nil
}

func netOf(p netip.Prefix) net.IPNet {
	return net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
