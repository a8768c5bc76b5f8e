package cni

import (
	"context"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

const checkTime = 10 * time.Second

func check(c *call) error {
	if err := c.validEnvironment(); err != nil {
		return err
	}
	env, err := parseArgs(c.CmdArgs.Args)
	if err != nil {
		return err
	}
	prev, err := c.conf.prevResult()
	if err != nil {
		return types.NewError(types.ErrInvalidNetworkConfig, err.Error(), "")
	}
	if prev == nil && !c.ipam {
		return types.NewError(types.ErrInvalidNetworkConfig, "CHECK needs prevResult, the result of the ADD", "")
	}
	req := c.checkRequest(prev)
	req.Caller, req.Attachment, req.Pod = c.caller(), c.attachment(), env.pod()
	req.Netns, req.Mode = c.Netns, c.mode()

	ctx, cancel := context.WithTimeout(context.Background(), checkTime)
	defer cancel()
	wait := patience{silent: time.Duration(c.conf.DialTimeout)}
	answer, err := ask(ctx, c.conf.Socket, wait, func(ctx context.Context, agent weftv1.RemoteCNIClient) (*weftv1.CheckReply, error) {
		return agent.Check(ctx, req)
	})
	if err != nil || answer.GetError() != nil {
		return failed("check "+c.name(req.GetPod()), err, answer.GetError())
	}
	return c.forward(ctx, "CHECK")
}

// checkRequest sends what the runtime remembers. An address of no interface is not ours: Weft's always have one, unless
// it gave them to another plugin.
func (c *call) checkRequest(prev *types100.Result) *weftv1.CheckRequest {
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
		had := &weftv1.IP{Address: ip.Address.String(), Gateway: textOf(ip.Gateway)}
		switch {
		case ip.Interface != nil && *ip.Interface >= 0 && *ip.Interface < len(prev.Interfaces):
			had.Interface = uint32(*ip.Interface)
		case !c.ipam:
			continue
		}
		req.Ips = append(req.Ips, had)
	}
	for _, r := range prev.Routes {
		req.Routes = append(req.Routes, &weftv1.Route{Destination: r.Dst.String(), Gateway: textOf(r.GW)})
	}
	return req
}

// textOf gives "" for no address, which net.IP calls <nil>.
func textOf(ip interface{ String() string }) string {
	if text := ip.String(); text != "<nil>" {
		return text
	}
	return ""
}
