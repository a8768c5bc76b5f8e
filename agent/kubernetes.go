package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/spf13/pflag"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/k8s"
	"github.com/weftnet/weft/pod"
)

// Kubernetes says whether the node is one of Kubernetes, and how its API server is reached.
type Kubernetes struct {
	Mode       string // none or cluster
	Node       string // its name; "": the host's
	Kubeconfig string // a file; "": as a pod does
}

// Modes of Kubernetes.
const (
	NoCluster = "none"
	InCluster = "cluster"
)

func (k *Kubernetes) flags(fs *pflag.FlagSet) {
	fs.StringVar(&k.Mode, "kubernetes-mode", NoCluster, "none (pods' annotations come from the runtime, networks from the configuration) or cluster (also from the API server)")
	fs.StringVar(&k.Node, "kubernetes-node", "", "name of this node in Kubernetes; default: NODE_NAME of the environment, else the host's name")
	fs.StringVar(&k.Kubeconfig, "kubernetes-kubeconfig", "", "how to reach the API server; default: as a pod does, by its service account")
}

func (k *Kubernetes) validate() error {
	return errors.Join(oneOf("kubernetes.mode", k.Mode, NoCluster, InCluster), absoluteOrNone("kubernetes.kubeconfig", k.Kubeconfig))
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

// viewKey is what the cluster bucket keeps what is known of the cluster under.
const viewKey = "view"

// assembleCluster prepares for the API server; nothing is sent before Run, unless the pools are its to say.
func (a *Agent) assembleCluster(ctx context.Context) error {
	if a.config.Kubernetes.Mode == NoCluster {
		return nil
	}
	connection, err := k8s.Connection(a.config.Kubernetes.Kubeconfig)
	if err != nil {
		return err
	}
	client, err := k8s.NewClient(connection)
	if err != nil {
		return err
	}
	node, err := a.config.Kubernetes.name()
	if err != nil {
		return err
	}
	known, err := load[k8s.View](a.state, clusterBucket, a.log)
	if err != nil {
		return err
	}
	config := k8s.Config{Node: node, Client: client, Log: a.log.With("room", "k8s")}
	if len(known) > 0 {
		config.Known = &known[0]
	}
	if a.cluster, err = k8s.New(config); err != nil {
		return err
	}
	if len(a.config.Pools) == 0 {
		return a.learnPools(ctx, client, node)
	}
	return nil
}

// oneQuestion bounds a question for the node's ranges to the API server.
const oneQuestion = 5 * time.Second

// learnPools takes the ranges that Kubernetes gave the node for its pools. Where the API server is away, those that were
// known before are.
func (a *Agent) learnPools(ctx context.Context, client *k8s.Client, node string) error {
	before := a.cluster.View().Node.PodCIDRs
	ask := func() (struct{}, error) {
		question, cancel := context.WithTimeout(ctx, oneQuestion)
		defer cancel()
		ranges, err := client.PodCIDRs(question, node)
		if err != nil && len(before) > 0 {
			a.log.Warn("the node's ranges of addresses not asked for, those that were known serve", "node", node, "err", err)
			ranges, err = before, nil
		}
		if err != nil {
			a.log.Warn("the node's ranges of addresses are not known yet, trying again", "node", node, "err", err)
			return struct{}{}, err
		}
		for _, r := range ranges {
			name := "pod-cidr-4"
			if r.Addr().Is6() {
				name = "pod-cidr-6"
			}
			a.config.Pools = append(a.config.Pools, Pool{Name: name, Prefix: r})
		}
		return struct{}{}, nil
	}
	if _, err := backoff.Retry(ctx, ask, backoff.WithMaxElapsedTime(0)); err != nil {
		return fmt.Errorf("pools: %w", err)
	}
	a.log.Info("pools are the node's ranges", "node", node, "pools", fmt.Sprint(a.config.Pools))
	return a.config.validatePools()
}

// annotations is who knows pods' annotations where the runtime does not give them; nil: nobody.
func (a *Agent) annotations() func(context.Context, pod.ID) (map[string]string, string, error) {
	if a.cluster == nil {
		return nil
	}
	return a.cluster.Annotations
}

// paused says whether, and why, the cluster's administrator holds pods up.
func (a *Agent) paused() (reason string, paused bool) {
	if a.cluster == nil {
		return "", false
	}
	reason = a.cluster.View().Paused
	return reason, reason != ""
}

// followCluster applies what the cluster says, whenever that changes.
func (a *Agent) followCluster(ctx context.Context) error {
	if err := a.health.await(ctx, conditionStarted); err != nil {
		return err
	}
	var known k8s.View
	settled := false // all networks of known are the node's
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-a.cluster.Changed(): // of anything, such as a pod or a heartbeat of the node
		}
		view := a.cluster.View()
		if !view.Complete {
			continue
		}
		if !reflect.DeepEqual(view, known) {
			a.keepView(ctx, view, known.Faults)
		}
		if !settled || !reflect.DeepEqual(view.Networks, known.Networks) {
			settled = a.setNetworks(ctx, a.networksOf(view), "cluster")
		}
		known = view
	}
}

// keepView makes a view durable, and tells of the faults that are new in it.
func (a *Agent) keepView(ctx context.Context, view k8s.View, told []k8s.Fault) {
	if err := a.state.Save(ctx, []eventloop.Saved{{Bucket: clusterBucket, Key: viewKey, Value: view}}); err != nil {
		a.log.Error("what is known of the cluster is not saved", "err", err)
	}
	for _, f := range view.Faults {
		if !slices.Contains(told, f) {
			a.log.Warn("object of the cluster cannot be used", "kind", f.Kind, "name", f.Name, "reason", f.Why)
		}
	}
}

// networksOf are those of the configuration, and of the cluster those of other names.
func (a *Agent) networksOf(view k8s.View) []pod.Network {
	configured := *a.configured.Load()
	networks := slices.Clone(configured)
	for _, n := range view.Networks {
		if slices.ContainsFunc(configured, func(o pod.Network) bool { return o.Name == n.Name }) {
			a.log.Warn("network of the cluster left out: the configuration has one of that name", "network", n.Name)
			continue
		}
		networks = append(networks, n)
	}
	return networks
}
