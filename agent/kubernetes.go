package agent

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/agent/statefile"
	"github.com/weftnet/weft/ipnet"
	"github.com/weftnet/weft/k8s"
	"github.com/weftnet/weft/pod"
)

// Keys of the cluster bucket.
const (
	viewKey   = "view"   // what is known of the cluster
	blocksKey = "blocks" // which blocks of addresses the node has

	announcedKey = "announced" // UID of the Node that the others were told of
)

// assembleCluster prepares for the API server; the one question that is sent before Run is for what the node is.
func (a *Agent) assembleCluster(ctx context.Context) error {
	if a.config.Kubernetes.Mode == config.NoCluster {
		return nil
	}
	connection, err := k8s.Connection(a.config.Kubernetes.Kubeconfig)
	if err != nil {
		return err
	}
	if a.client, err = k8s.NewClient(connection); err != nil {
		return err
	}
	if a.config.Kubernetes.Node, err = a.config.Kubernetes.Name(); err != nil {
		return err
	}
	config := k8s.Config{
		Node: a.config.Kubernetes.Node, Client: a.client, Log: a.log.With("room", "k8s"), OnPod: k8s.Annotated(a.noticeEdit),
	}
	var known k8s.View
	was, err := a.state.Get(statefile.BucketCluster, viewKey, &known)
	if err != nil {
		a.log.Error("what was known of the cluster is left out", "err", err)
	}
	if was {
		config.Known = &known
	}
	if a.cluster, err = k8s.New(config); err != nil {
		return err
	}
	a.events, a.podReport = a.cluster.Events(), newPodReport()
	a.observers = append(a.observers, a.reportFailure, a.reportUnknown, a.podReport.observe, a.countChange)
	if err = a.assembleNetworkStatus(); err != nil {
		return err
	}
	if a.config.Kubernetes.ReportPolicies {
		a.health.Advise(health.Policies)
		a.policies = &policies{
			count: a.client.CountPolicies, health: a.health, log: a.log,
			attachments: func() []pod.Attachment { return a.pods.Attachments() },
		}
	}
	defer a.health.Set(health.Started, false, health.FirstResync)
	return a.serveWhile(ctx, a.learnNode)
}

// tunnelType is how packets get to other nodes.
func (a *Agent) tunnelType() string {
	if a.cluster == nil {
		return ipnet.TunnelNone
	}
	return a.config.Kubernetes.Tunnel
}

// runCluster does what being one of a cluster takes until ctx ends. Addresses are told of once all pods are known again.
func (a *Agent) runCluster(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return a.cluster.Run(ctx) })
	group.Go(func() error { return a.followCluster(ctx) })
	group.Go(func() error { return a.followUplink(ctx) })
	group.Go(func() error { return a.announcing(ctx) })
	group.Go(func() error { return a.awaitAnnouncement(ctx) })
	group.Go(func() error { return a.events.Run(ctx) })
	group.Go(func() error { return a.keeper.Run(ctx) })
	group.Go(func() error { return a.isolating(ctx) })
	group.Go(func() error {
		if err := a.health.Await(ctx, health.Started); err != nil {
			return err
		}
		group.Go(func() error { return a.reportPods(ctx) })
		if a.policies != nil {
			group.Go(func() error { return a.policies.run(ctx) })
		}
		if a.annotator != nil {
			group.Go(func() error { return a.annotator.Run(ctx) })
		}
		return a.publisher.Run(ctx)
	})
	return group.Wait()
}

// annotations is who knows pods' annotations where the runtime does not give them; nil: nobody.
func (a *Agent) annotations() func(context.Context, pod.ID) (map[string]string, string, error) {
	if a.cluster == nil {
		return nil
	}
	return a.cluster.Annotations
}

// paused reports whether, and why, no new pods are served: the cluster's administrator holds them up, or the state file takes no write. DELs
// are served.
func (a *Agent) paused() (reason string, paused bool) {
	if a.cluster != nil {
		reason = a.cluster.View().Paused
	}
	if reason == "" && a.monitor.Try() != nil {
		reason = a.health.Failure(health.State)
	}
	return reason, reason != ""
}
