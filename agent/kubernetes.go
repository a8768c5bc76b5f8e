package agent

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/agent/statefile"
	"github.com/weftnet/weft/ipnet"
	"github.com/weftnet/weft/k8s"
	"github.com/weftnet/weft/pod"
)

// Kubernetes says whether the node is one of Kubernetes, and how its API server is reached.
type Kubernetes struct {
	Mode       string // none or cluster
	Node       string // its name; "": the host's
	Kubeconfig string // a file; "": as a pod does
	Addresses  string // where those of pods' main interfaces come from: podCIDR or pools
	Tunnel     string // how packets get to other nodes: vxlan4, vxlan6 or none

	RequireUplink bool // the agent waits for the link to other nodes, whose MTU pods' interfaces follow

	Multus         bool // is on the node: selections of networks, and the annotation network-status, are its business
	NetworkStatus  bool // pods are told in that annotation what they got
	ReportPolicies bool // the operator is told that NetworkPolicies are not enforced

	RuntimeSocket string // CRI socket of the container runtime: a path, auto or none
}

// Modes of Kubernetes.
const (
	NoCluster = "none"
	InCluster = "cluster"
)

// Where the addresses of pods' main interfaces come from.
const (
	OfPodCIDR = "podCIDR" // the ranges that Kubernetes gave the node
	OfPools   = "pools"   // blocks of the cluster's IPPools
)

func (k *Kubernetes) flags(fs *pflag.FlagSet) {
	fs.StringVar(&k.Mode, "kubernetes-mode", NoCluster, "none (pods' annotations come from the runtime, networks from the configuration) or cluster (also from the API server)")
	fs.StringVar(&k.Node, "kubernetes-node", "", "name of this node in Kubernetes; default: NODE_NAME of the environment, else the host's name")
	fs.StringVar(&k.Kubeconfig, "kubernetes-kubeconfig", "", "how to reach the API server; default: as a pod does, by its service account")
	fs.StringVar(&k.Addresses, "kubernetes-addresses", OfPodCIDR, "where addresses of pods' main interfaces come from: podCIDR (the node's ranges of Kubernetes) or pools (blocks of IPPools)")
	fs.StringVar(&k.Tunnel, "kubernetes-tunnel", ipnet.TunnelVXLAN4, "how packets get to other nodes: vxlan4, vxlan6, or none (nodes share a subnet; custom networks end at the node then)")
	fs.BoolVar(&k.RequireUplink, "kubernetes-require-uplink", false, "serve no pod before the link with the node's address is there, whose MTU pods' interfaces follow; off: go on without after 15s")
	fs.BoolVar(&k.Multus, "kubernetes-multus", false, "Multus is on the node: pods' selections of networks and the annotation network-status are left to it")
	fs.StringVar(&k.RuntimeSocket, "kubernetes-runtime-socket", Auto, "CRI socket of the container runtime, asked whether sandboxes of deleted pods are gone: a path, auto (the sockets of containerd and CRI-O) or none")
	fs.BoolVar(&k.ReportPolicies, "kubernetes-report-network-policies", true, "report NetworkPolicies as not enforced where pods' main interfaces are Weft's; off where another component enforces them")
	fs.BoolVar(&k.NetworkStatus, "kubernetes-network-status", true, "write what pods got into their annotation k8s.v1.cni.cncf.io/network-status")
}

func (k *Kubernetes) validate() error {
	return errors.Join(
		oneOf("kubernetes.mode", k.Mode, NoCluster, InCluster), validateRuntime(k.RuntimeSocket), absoluteOrNone("kubernetes.kubeconfig", k.Kubeconfig),
		oneOf("kubernetes.addresses", k.Addresses, OfPodCIDR, OfPools),
		oneOf("kubernetes.tunnel", k.Tunnel, ipnet.TunnelVXLAN4, ipnet.TunnelVXLAN6, ipnet.TunnelNone),
	)
}

func absoluteOrNone(key, path string) error {
	if path == "" {
		return nil
	}
	return absolute(key, path)
}

// name is the node's.
func (k *Kubernetes) name() (string, error) {
	if k.Node != "" {
		return k.Node, nil
	}
	if name := os.Getenv("NODE_NAME"); name != "" {
		return name, nil
	}
	name, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("kubernetes.node is not set, and the host has no name: %w", err)
	}
	return name, nil
}

// Keys of the cluster bucket.
const (
	viewKey   = "view"   // what is known of the cluster
	blocksKey = "blocks" // which blocks of addresses the node has

	announcedKey = "announced" // UID of the Node that the others were told of
)

// assembleCluster prepares for the API server; the one question that is sent before Run is for what the node is.
func (a *Agent) assembleCluster(ctx context.Context) error {
	if a.config.Kubernetes.Mode == NoCluster {
		return nil
	}
	connection, err := k8s.Connection(a.config.Kubernetes.Kubeconfig)
	if err != nil {
		return err
	}
	if a.client, err = k8s.NewClient(connection); err != nil {
		return err
	}
	if a.config.Kubernetes.Node, err = a.config.Kubernetes.name(); err != nil {
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
	if reason == "" {
		reason = a.health.Failure(health.State)
	}
	return reason, reason != ""
}
