package cni

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weftnet/weft/proto/serving"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

const checkTime = 10 * time.Second

func check(c *call) error {
	if err := c.validateEnvironment(); err != nil {
		return err
	}
	env, err := parseArgs(c.CmdArgs.Args)
	if err != nil {
		return err
	}
	prev, err := c.conf.prevResult()
	if err != nil {
		return errorf(types.ErrInvalidNetworkConfig, "%v", err)
	}
	if prev == nil && !c.ipam {
		return errorf(types.ErrInvalidNetworkConfig, "CHECK needs prevResult, the result of the ADD")
	}
	req := c.role.checkRequest(prev)
	req.Caller = c.caller()
	req.Attachment = c.key().message()
	req.Pod = env.pod()
	req.Netns = c.Netns
	req.Mode = c.mode()

	ctx, cancel := context.WithTimeout(context.Background(), checkTime)
	defer cancel()
	answer, err := ask(ctx, c.conf.endpoint(), weftv1.RemoteCNIClient.Check, req)
	if err := callError("check "+c.key().describe(req.GetPod()), err, answer.GetError()); err != nil {
		return err
	}
	return c.ipamPlugin().forward(ctx, "CHECK")
}

// checkRequest contains prevResult. It omits addresses without an interface unless the plugin is weft-ipam: weft-cni
// never returns one.
func (r role) checkRequest(prev *types100.Result) *weftv1.CheckRequest {
	req := &weftv1.CheckRequest{}
	if prev == nil {
		return req
	}
	for _, in := range prev.Interfaces {
		req.Interfaces = append(req.Interfaces, &weftv1.Interface{
			Name: in.Name, Mac: in.Mac, Mtu: uint32(max(in.Mtu, 0)), Sandbox: in.Sandbox, SocketPath: in.SocketPath,
		})
	}
	for _, ip := range prev.IPs {
		had := &weftv1.IP{Address: ip.Address.String(), Gateway: ipText(ip.Gateway)}
		switch {
		case ip.Interface != nil && *ip.Interface >= 0 && *ip.Interface < len(prev.Interfaces):
			had.Interface = uint32(*ip.Interface)
		case !r.ipam:
			continue
		}
		req.Ips = append(req.Ips, had)
	}
	for _, route := range prev.Routes {
		req.Routes = append(req.Routes, &weftv1.Route{Destination: route.Dst.String(), Gateway: ipText(route.GW)})
	}
	return req
}

// ipText returns "" for nil.
func ipText(ip net.IP) string {
	if len(ip) == 0 {
		return ""
	}
	return ip.String()
}

// gcTime is less than CRI-O's timeout of 30 seconds.
const gcTime = 25 * time.Second

// gc removes all attachments that are not in the list of valid attachments, which may be empty or null. Without a list
// it succeeds and removes no attachment: cnitool, and libcni without arguments, send a DEL for each cached attachment
// and then a GC without a list.
func gc(c *call) error {
	ctx, cancel := context.WithTimeout(context.Background(), gcTime)
	defer cancel()
	if !c.conf.Valid.present {
		c.log.Warn("GC without a list of valid attachments: nothing removed", "network", c.conf.Name)
		return c.ipamPlugin().forward(ctx, "GC")
	}
	req := &weftv1.CollectRequest{Caller: c.caller(), Network: c.key().network()}
	for _, a := range c.conf.Valid.list {
		req.Valid = append(req.Valid, &weftv1.Attachment{ContainerId: a.ContainerID, IfName: a.IfName})
	}
	answer, err := ask(ctx, c.conf.endpoint(), weftv1.RemoteCNIClient.Collect, req)
	err = callError("collect "+c.conf.Name, err, answer.GetError())
	if err == nil {
		c.log.Info("collected", "network", c.conf.Name, "removed", len(answer.GetRemoved()))
	}
	return joinErrors(err, c.ipamPlugin().forward(ctx, "GC"))
}

// Timeouts of a STATUS: containerd holds a lock meanwhile, so the plugin answers within two seconds.
const (
	statusTime = 1800 * time.Millisecond
	reachTime  = time.Second
)

// grace is how long STATUS succeeds after the agent stopped serving. Meanwhile ADDs fail with code 11 and are retried,
// which costs less than a node that is not ready.
const grace = time.Minute

func reportStatus(c *call) error {
	ctx, cancel := context.WithTimeout(context.Background(), statusTime)
	defer cancel()
	req := &weftv1.StatusRequest{Caller: c.caller(), Network: c.key().network()}
	unavailable, err := askStatus(ctx, c.conf.Socket, req)
	if err != nil && (!unavailable || !serving.Within(c.conf.Socket, grace)) {
		return err
	}
	return toStatusError(c.ipamPlugin().forward(ctx, "STATUS"))
}

// askStatus returns nil if the agent would serve an ADD; its errors have only codes of STATUS. unavailable reports
// whether the agent does not answer in time, is not reachable or starts.
func askStatus(ctx context.Context, socket string, req *weftv1.StatusRequest) (unavailable bool, err error) {
	answer, err := ask(ctx, endpoint{socket: socket, unreachable: reachTime}, weftv1.RemoteCNIClient.Status, req)
	unavailable = err != nil && isRetryable(err) || status.Code(err) == codes.DeadlineExceeded ||
		answer.GetError().GetDetails() == detailRestoring
	return unavailable, toStatusError(callError("status", err, answer.GetError()))
}

// toStatusError replaces a code that a STATUS must not return.
func toStatusError(err error) error {
	if err == nil {
		return nil
	}
	e, ok := errors.AsType[*types.Error](err)
	switch {
	case !ok:
		return errorf(types.ErrPluginNotAvailable, "%v", err)
	case e.Code != types.ErrLimitedConnectivity:
		return types.NewError(types.ErrPluginNotAvailable, e.Msg, e.Details)
	}
	return e
}
