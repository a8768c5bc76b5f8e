package agent

import (
	"context"

	"github.com/weftnet/weft/ipnet"
	"github.com/weftnet/weft/pod"
)

// linkTypes resolves the configured link types; noTap is why the dataplane cannot create taps, "" if it can. A type that the
// operator chose stays, even where it will be refused.
func (c *Config) linkTypes(noTap string) ipnet.LinkTypes {
	usual := pod.TypeTap
	if noTap != "" {
		usual = pod.TypeVeth
	}
	resolve := func(configured string) string {
		if configured == Auto {
			return usual
		}
		return configured
	}
	return ipnet.LinkTypes{Pod: resolve(c.PodInterface), Host: resolve(c.HostLinkType), NoTap: noTap}
}

// chooseLinkTypes asks the dataplane whether it can create taps, and has networks use what it can. weft-vswitch needs nothing
// that a node might lack; VPP needs vhost-net.
func (a *Agent) chooseLinkTypes(ctx context.Context) {
	if a.config.Dataplane.Type != VPP {
		return
	}
	noTap, err := a.dataplane.client.WhyNoTap(ctx)
	if err != nil {
		a.log.Warn("dataplane not asked whether it can create taps", "err", err)
		return
	}
	types := a.config.linkTypes(noTap)
	if noTap != "" {
		a.log.Warn("dataplane cannot create taps", "reason", noTap, "hostLink", types.Host, "podInterface", types.Pod)
	}
	if err := a.network.SetLinkTypes(types); err != nil {
		a.log.Error("link types not changed", "err", err)
	}
}
