package agent

import (
	"context"
	"log/slog"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/agent/southbound"
	"github.com/weftnet/weft/dataplane/splice"
	"github.com/weftnet/weft/ipnet/mesh"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/pod"
)

// linkTypes resolves the configured link types; noTap is why the dataplane cannot create taps, "" if it can. A type
// that the operator chose stays, even if the dataplane will refuse it.
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
	return mesh.LinkTypes{Pod: resolve(c.Pods.Interface), Host: resolve(c.Links.HostType), NoTap: noTap}
}

// backend executes transactions: the scheduler orders their operations, and the dataplane and the kernel apply them.
type backend struct {
	config    *config.Config
	scheduler *kvscheduler.Scheduler
	committer *committer
	dataplane *southbound.Dataplane
	splices   *splice.Splices
	shared    *sharedObjects
	log       *slog.Logger
}

// chooseLinkTypes asks the dataplane whether it can create taps, and sets the link types accordingly. VPP needs
// vhost-net for taps; weft-vswitch has no requirement that a node may lack. It retries until it gets a reply: a wrong
// guess would replace the host link.
func (b *backend) chooseLinkTypes(ctx context.Context, host *mesh.Host) {
	if b.config.Dataplane.Type != config.VPP {
		return
	}
	reason := ""
	noTap, err := backoff.Retry(ctx, func() (string, error) { return b.dataplane.Client.WhyNoTap(ctx) },
		backoff.WithBackOff(backoff.NewConstantBackOff(time.Second)), backoff.WithMaxElapsedTime(0),
		backoff.WithNotify(func(err error, _ time.Duration) {
			if err.Error() != reason {
				reason = err.Error()
				b.log.Warn("dataplane did not report whether it can create taps, retrying", "err", err)
			}
		}))
	if err != nil {
		return // the agent ends
	}
	types := linkTypes(b.config, noTap)
	if noTap != "" {
		b.log.Warn("dataplane cannot create taps", "reason", noTap, "hostLink", types.Host, "podInterface", types.Pod)
	}
	if err := host.SetLinkTypes(types); err != nil {
		b.log.Error("link types not changed", "err", err)
	}
}

// maxSegment returns the size of the largest packet that a veth carries unsegmented; 0 is the kernel's limit, which
// weft-vswitch accepts.
func maxSegment(c *config.Config) int {
	if c.Dataplane.Type != config.VPP {
		return 0
	}
	if c.Kubernetes.TunnelPort() != 0 {
		return noSegment
	}
	return c.Dataplane.Rings().MaxSegment()
}

// noSegment makes the kernel segment every packet. VPP's af_packet input does not mark IPv4 for a header checksum, by
// which VPP's segmentation tells IPv4 from IPv6 (25.10 and 26.06, af_packet/node.c and vnet/gso/gso.h): long packets
// from a veth would leave a tunnel with wrong lengths. The value is above the space for TCP headers, which the kernel
// subtracts.
const noSegment = 512
