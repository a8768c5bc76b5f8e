package podmanager

import (
	"github.com/weftnet/weft/pod"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// replyOf makes the reply of an ADD from what is kept of it alone, so that a repeated ADD has the same one.
func replyOf(a *pod.Attachment) *weftv1.AddReply {
	reply := &weftv1.AddReply{}
	for i, in := range a.Interfaces {
		reply.Interfaces = append(reply.Interfaces, &weftv1.Interface{
			Name: in.Name, Mac: in.MAC, Mtu: uint32(in.MTU), Sandbox: a.Netns.Path, SocketPath: in.SocketPath,
		})
		for j, address := range in.Addresses {
			ip := &weftv1.IP{Address: address.String(), Interface: uint32(i)}
			if j < len(in.Gateways) && in.Gateways[j].IsValid() {
				ip.Gateway = in.Gateways[j].String()
			}
			reply.Ips = append(reply.Ips, ip)
		}
		for _, r := range in.Routes {
			reply.Routes = append(reply.Routes, routeOf(r))
		}
	}
	return reply
}

func routeOf(r pod.Route) *weftv1.Route {
	route := &weftv1.Route{Destination: r.Destination.String()}
	if r.Gateway.IsValid() {
		route.Gateway = r.Gateway.String()
	}
	return route
}
