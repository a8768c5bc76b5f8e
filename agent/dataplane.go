package agent

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/ipnet/mesh"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/pod"
)

// linkTypes resolves the configured link types; noTap is why the dataplane cannot create taps, "" if it can. A type that the
// operator chose stays, even where it will be refused.
func linkTypes(c *config.Config, noTap string) mesh.LinkTypes {
	usual := pod.TypeTap
	if noTap != "" {
		usual = pod.TypeVeth
	}
	resolve := func(configured string) string {
		if configured == config.Auto {
			return usual
		}
		return configured
	}
	return mesh.LinkTypes{Pod: resolve(c.PodInterface), Host: resolve(c.HostLinkType), NoTap: noTap}
}

// chooseLinkTypes asks the dataplane whether it can create taps, and has networks use what it can. weft-vswitch needs nothing
// that a node might lack; VPP needs vhost-net. It asks until it gets an answer: a wrong guess would replace the host link.
func (a *Agent) chooseLinkTypes(ctx context.Context) {
	if a.config.Dataplane.Type != config.VPP {
		return
	}
	reason := ""
	noTap, err := backoff.Retry(ctx, func() (string, error) { return a.dataplane.Client.WhyNoTap(ctx) },
		backoff.WithBackOff(backoff.NewConstantBackOff(time.Second)), backoff.WithMaxElapsedTime(0),
		backoff.WithNotify(func(err error, _ time.Duration) {
			if err.Error() != reason {
				reason = err.Error()
				a.log.Warn("dataplane did not say whether it can create taps, asking again", "err", err)
			}
		}))
	if err != nil {
		return // the agent ends
	}
	types := linkTypes(&a.config, noTap)
	if noTap != "" {
		a.log.Warn("dataplane cannot create taps", "reason", noTap, "hostLink", types.Host, "podInterface", types.Pod)
	}
	if err := a.network.Host.SetLinkTypes(types); err != nil {
		a.log.Error("link types not changed", "err", err)
	}
}

// maxSegment is the largest packet that veths carry in one piece; 0: the kernel's. weft-vswitch takes what the kernel gives.
func maxSegment(c *config.Config) int {
	if c.Dataplane.Type != config.VPP {
		return 0
	}
	if c.Kubernetes.Mode == config.InCluster && c.Kubernetes.Tunnel != networks.TunnelNone {
		return noSegment
	}
	return c.Dataplane.Rings().MaxSegment()
}

// noSegment has the kernel segment everything itself. VPP's af_packet input does not mark IPv4 for a header checksum, by which
// VPP's segmentation tells IPv4 from IPv6 (25.10 and 26.06, af_packet/node.c and vnet/gso/gso.h): long packets from a veth
// would leave a tunnel with wrong lengths. The value is above the kernel's room for TCP headers, which it subtracts.
const noSegment = 512
