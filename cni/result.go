package cni

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
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

// composer makes the result of an ADD from the agent's reply.
type composer struct {
	role
	conf  *conf
	prev  *types100.Result // nil without one
	stdin []byte           // the configuration as the runtime sent it
}

// compose returns the result in the version of the configuration.
func (c composer) compose(reply *weftv1.AddReply) (types.Result, error) {
	result, err := c.result(reply)
	if err != nil {
		return nil, err
	}
	return result.GetAsVersion(c.conf.CNIVersion)
}

// result appends the agent's reply to prev. The result of weft-ipam has no interfaces.
func (c composer) result(reply *weftv1.AddReply) (*types100.Result, error) {
	result := &types100.Result{CNIVersion: types100.ImplementedSpecVersion, DNS: c.dns(reply)}
	if c.prev != nil {
		result.Interfaces = c.prev.Interfaces
		result.IPs = c.prev.IPs
		result.Routes = c.prev.Routes
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

// dns returns the DNS of the network for which the pod asks. Otherwise it keeps the DNS of an earlier plugin. The
// configuration takes precedence over a third-party IPAM plugin.
func (c composer) dns(reply *weftv1.AddReply) types.DNS {
	d := reply.GetDns()
	switch {
	case reply.GetNetworkDns() != nil:
		d = reply.GetNetworkDns()
	case c.prev != nil && (c.mode(c.conf) == modeChained || !c.prev.DNS.IsEmpty()):
		return c.prev.DNS
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

// passThrough returns prevResult byte for byte if an ADD in a chain does not change it, to keep members that the
// library does not know. It returns nil if members are added, or if prevResult has another version.
func (c composer) passThrough(answer *weftv1.AddReply) *verbatim {
	if c.mode(c.conf) != modeChained || len(answer.GetInterfaces())+len(answer.GetIps())+len(answer.GetRoutes()) > 0 {
		return nil
	}
	var conf struct {
		Prev json.RawMessage `json:"prevResult"`
	}
	var prev struct {
		CNIVersion string `json:"cniVersion"`
	}
	if json.Unmarshal(c.stdin, &conf) != nil || json.Unmarshal(conf.Prev, &prev) != nil ||
		prev.CNIVersion != c.conf.CNIVersion {
		return nil
	}
	return &verbatim{conf.Prev, os.Stdout}
}

// verbatim is a JSON document that is printed without changes.
type verbatim struct {
	document []byte
	out      io.Writer
}

// Print prints it.
func (v *verbatim) Print() error {
	if _, err := v.out.Write(v.document); err != nil {
		return fmt.Errorf("print prevResult: %w", err)
	}
	return nil
}

func printOutput(result interface{ Print() error }) error {
	if err := printDocument(result); err != nil {
		return errorf(types.ErrIOFailure, "print the result: %v", err)
	}
	return nil
}

// printDocument adds a newline, which the library omits.
func printDocument(document interface{ Print() error }) error {
	err := document.Print()
	if err == nil {
		_, err = fmt.Fprintln(os.Stdout)
	}
	return err
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
