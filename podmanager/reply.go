package podmanager

import (
	"net/netip"
	"slices"

	"github.com/weftnet/weft/pod"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// inSandbox are the interfaces of a reply that the pod has.
func inSandbox(reply *weftv1.AddReply) []*weftv1.Interface {
	isNodes := func(i *weftv1.Interface) bool { return i.GetSandbox() == "" }
	return slices.DeleteFunc(slices.Clone(reply.GetInterfaces()), isNodes)
}

// replyOf makes the reply of an ADD from what is kept of it alone, so that a repeated ADD has the same one. An interface
// of which Weft gave the addresses only is left out: it is not Weft's to tell of. So is the node's end of a veth: the
// dataplane takes its packets before the kernel's traffic control, so the plugin bandwidth would limit nothing there. Without that
// end in the result it refuses to limit the pod.
func replyOf(a *pod.Attachment) *weftv1.AddReply {
	reply := &weftv1.AddReply{Dns: dnsOf(a.Delegation.DNS)}
	for _, in := range a.Interfaces {
		at := uint32(len(reply.Interfaces))
		if in.Type != pod.TypeIPAM {
			reply.Interfaces = append(reply.Interfaces, &weftv1.Interface{
				Name: in.Name, Mac: in.MAC, Mtu: uint32(in.MTU), Sandbox: a.Netns.Path, SocketPath: socketPath(in),
			})
		}
		for j, address := range in.Addresses {
			ip := &weftv1.IP{Address: address.String(), Interface: at}
			if j < len(in.Gateways) && in.Gateways[j].IsValid() {
				ip.Gateway = in.Gateways[j].String()
			}
			reply.Ips = append(reply.Ips, ip)
		}
		if in.Type == pod.TypeMemif {
			continue // its routes are its program's: the kernel has none of them
		}
		for _, r := range in.Routes {
			reply.Routes = append(reply.Routes, routeOf(r))
		}
	}
	for _, r := range a.Delegation.Routes {
		leadsThere := func(other *weftv1.Route) bool { return samePrefix(other.GetDestination(), r.Destination.String()) }
		if !slices.ContainsFunc(reply.Routes, leadsThere) {
			reply.Routes = append(reply.Routes, &weftv1.Route{Destination: r.Destination.String(), Gateway: gatewayFor(reply, r)})
		}
	}
	return reply
}

// gatewayFor is Weft's own gateway, which stands in for that of the IPAM plugin: everything of the main interface leads there.
func gatewayFor(reply *weftv1.AddReply, r pod.Route) string {
	for _, ip := range reply.GetIps() {
		gateway, err := netip.ParseAddr(ip.GetGateway())
		if err == nil && ip.GetInterface() == 0 && gateway.Is4() == r.Destination.Addr().Is4() {
			return ip.GetGateway()
		}
	}
	return ""
}

func routeOf(r pod.Route) *weftv1.Route {
	route := &weftv1.Route{Destination: r.Destination.String()}
	if r.Gateway.IsValid() {
		route.Gateway = r.Gateway.String()
	}
	return route
}

func dnsOf(d pod.DNS) *weftv1.DNS {
	if d.IsZero() {
		return nil
	}
	return &weftv1.DNS{Nameservers: d.Nameservers, Domain: d.Domain, Search: d.Search, Options: d.Options}
}

func socketPath(in pod.Interface) string {
	if in.Memif == nil {
		return ""
	}
	return in.Memif.SocketPath
}
