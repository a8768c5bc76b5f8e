package podmanager

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/internal/line"
	"github.com/weftnet/weft/pod"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// inSandbox returns the interfaces of a reply that are in the pod.
func inSandbox(reply *weftv1.AddReply) []*weftv1.Interface {
	isNodes := func(i *weftv1.Interface) bool { return i.GetSandbox() == "" }
	return slices.DeleteFunc(slices.Clone(reply.GetInterfaces()), isNodes)
}

// replyOf builds the reply of an ADD from the attachment alone, so that a repeated ADD gets the same reply. It omits an
// interface of another plugin that got only its addresses from Weft. It also omits the host end of a veth: the
// dataplane takes packets before the kernel's traffic control, so the bandwidth plugin would have no effect there.
// Without that end the plugin fails instead.
func replyOf(a *pod.Attachment) *weftv1.AddReply {
	reply := &weftv1.AddReply{Dns: dnsOf(a.Delegation.DNS)}
	replied := make(map[netip.Prefix]bool)
	for _, in := range a.Interfaces {
		at := uint32(len(reply.Interfaces))
		if in.Type != pod.TypeIPAM {
			reply.Interfaces = append(reply.Interfaces, &weftv1.Interface{
				Name:       in.Name,
				Mac:        in.MAC.String(),
				Mtu:        uint32(in.MTU),
				Sandbox:    a.Netns.Path,
				SocketPath: socketPath(in),
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
			continue // its program handles the routes, not the kernel
		}
		for _, r := range in.Routes {
			replied[r.Destination] = true
			reply.Routes = append(reply.Routes, routeOf(r))
		}
	}
	for _, r := range a.Delegation.Routes {
		if replied[r.Destination] {
			continue
		}
		replied[r.Destination] = true
		reply.Routes = append(reply.Routes, &weftv1.Route{
			Destination: r.Destination.String(),
			Gateway:     gatewayFor(reply, r),
		})
	}
	return reply
}

// gatewayFor returns Weft's own gateway, which replaces the one of the IPAM plugin for all routes of the main
// interface.
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
	route := &weftv1.Route{Destination: r.Destination.String(), Metric: uint32(r.Metric)}
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
	switch {
	case in.Memif == nil, in.Memif.Role == pod.RoleServer: // which listens in its network namespace
		return ""
	case in.Memif.IsDirect():
		return in.Memif.DirectSocket()
	}
	return in.Memif.SocketPath
}

// codeInternal is the code that the CNI library gives to errors without one.
const codeInternal uint = 999

// starting, as the details of an error, tells the plugin that the agent does not serve yet. The plugin waits or queues
// a DEL.
const starting = "starting"

// restoring, as the details of a STATUS, tells the plugin that the first resync, which takes seconds, is not finished.
const restoring = "restoring"

// replyError converts an error to one line and a code for the runtime.
func replyError(err error, rec *eventloop.Record) *weftv1.Error {
	reply := &weftv1.Error{Code: uint32(codeOf(err, rec)), Msg: line.Of(err.Error(), line.Error)}
	own, ok := errors.AsType[*pod.Error](err)
	if ok {
		reply.Msg = line.Of(own.Error(), line.Error) // the text for operators
	}
	if isStarting(err) {
		reply.Details = starting
	} else if rec != nil {
		reply.Details = details(rec)
	}
	return reply
}

// codeOf returns the most specific code of the wrapped errors.
func codeOf(err error, rec *eventloop.Record) uint {
	own, isOwn := errors.AsType[*pod.Error](err)
	switch {
	case isStarting(err), errors.Is(err, eventloop.ErrCancelled), errors.Is(err, eventloop.ErrQueueFull):
		return pod.CodeTryAgain
	case isOwn:
		return own.Code
	case errors.Is(err, eventloop.ErrNotSaved):
		return pod.CodeIO
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return pod.CodeTimeout
	case refused(rec):
		return pod.CodeRefused
	}
	return codeInternal
}

func isStarting(err error) bool {
	_, ok := errors.AsType[*notReadyError](err)
	return ok || errors.Is(err, eventloop.ErrNotReady) || errors.Is(err, eventloop.ErrStopped)
}

// refused reports whether the commit failed in the dataplane or the kernel.
func refused(rec *eventloop.Record) bool {
	if rec == nil {
		return false
	}
	for _, s := range rec.Steps {
		if s.Name == "commit" && s.Err != "" {
			return true
		}
	}
	return false
}

// details names the event, and the objects that are left behind.
func details(rec *eventloop.Record) string {
	d := fmt.Sprintf("event %d", rec.Seq)
	if len(rec.Stuck) > 0 {
		d += ", left behind: " + strings.Join(rec.Stuck, ", ")
	}
	return line.Of(d, line.Error)
}

// notReadyError means that the agent runs but does not serve yet.
type notReadyError struct{ reason error }

// Error returns the reason.
func (e *notReadyError) Error() string { return "agent is starting: " + e.reason.Error() }

// Unwrap returns the reason.
func (e *notReadyError) Unwrap() error { return e.reason }
