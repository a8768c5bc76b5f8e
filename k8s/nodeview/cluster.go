// Package nodeview is what the API server says about this node, its pods, and all networks and pools.
//
// It comes from watches, so that no caller waits for the API server; the exception is a pod that no watch has shown
// yet. A view is always complete and not a difference.
package nodeview

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/weftnet/weft/k8s/api/npwg"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/client"
	"github.com/weftnet/weft/k8s/informer"
	"github.com/weftnet/weft/k8s/pods"
	"github.com/weftnet/weft/pod"
)

// Config configures a [Cluster]. Node and Client are required.
type Config struct {
	Node   string // name of this node
	Client *client.Client
	// Tunnel is what this node announces. A node with another tunnel is left out; the zero value permits all.
	Tunnel v1.Tunnel

	// Known is the view of an earlier run. It is used until the API server has shown all objects.
	Known *View
	// OnPod is called for each pod of this node that is new, changed or gone (p is nil), one call at a time. Several
	// changes of a pod may be one call. After an error it is called again, later each time. Pods in the node's network
	// namespace are ignored.
	OnPod func(ctx context.Context, id pod.ID, p *corev1.Pod) error
	// Question bounds a request that a pod waits for; default 3 s.
	Question time.Duration
	Log      *slog.Logger
}

// Cluster is what this node knows of its cluster.
type Cluster struct {
	*pods.Pods // of this node
	*claims
	*definitions
	*meshView
	*blockWatches
	notice

	config     *Config
	watches    *informer.Group
	addressing *addressing
	namespaces *namespaces
	externals  *externals
	settings   *settings
}

// New makes a cluster that knows only what an earlier run knew. It sends nothing before Run.
func New(c Config) (*Cluster, error) {
	if c.Node == "" || c.Client == nil {
		return nil, errors.New("nodeview: Node and Client are needed")
	}
	c.Question = cmp.Or(c.Question, 3*time.Second)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	cluster := &Cluster{
		definitions:  &definitions{config: &c},
		blockWatches: new(blockWatches),
		notice:       notice{changed: make(chan struct{}, 1)},
		config:       &c,
		watches:      informer.NewGroup(c.Log),
		namespaces:   new(namespaces),
		externals:    &externals{node: c.Node},
		settings:     new(settings),
	}
	cluster.Pods = pods.New(pods.Config{
		Node:     c.Node,
		Client:   c.Client,
		OnPod:    cluster.onPod,
		Question: c.Question,
		Log:      c.Log,
	})
	cluster.claims = &claims{config: &c, pods: cluster.Pods}
	permissions := &permissions{
		config: &c, pods: cluster.Pods, namespaces: cluster.namespaces, labelled: make(map[string]labelled),
	}
	cluster.addressing = &addressing{
		node:     c.Node,
		networks: customNetworks{namespaces: cluster.namespaces, permissions: permissions},
		pools:    ipPools{namespaces: cluster.namespaces, settings: cluster.settings},
	}
	cluster.meshView = &meshView{
		notice:     cluster.notice,
		config:     &c,
		watches:    cluster.watches,
		addressing: cluster.addressing,
		blocks:     cluster.blockWatches,
	}
	cluster.stale.Store(true)
	if c.Known != nil {
		cluster.former = c.Known.Former
	}
	cluster.watch()
	return cluster, nil
}

// watch adds the informers. Of other nodes' objects it watches those that announcements are validated against.
func (c *Cluster) watch() {
	g := c.watches
	client := c.config.Client
	own := fields.OneTermEqualSelector("spec.node", c.config.Node).String()
	others := fields.OneTermNotEqualSelector("spec.node", c.config.Node).String()
	c.addressing.machines = informer.Add(g, "nodes", client.Nodes(), informer.Options[*corev1.Node]{
		Lighten: c.addressing.lighten,
		Same:    sameNode,
		Changed: c.outdate,
	})
	c.namespaces.watched = informer.Add(g, "namespaces", client.Namespaces(), informer.Options[*corev1.Namespace]{
		Changed: c.poke,
	})
	c.addressing.networks.watched = informer.Add(g, "custom networks", client.Networks(),
		informer.Options[*v1.CustomNetwork]{Changed: c.outdate})
	c.addressing.pools.watched = informer.Add(g, "pools", client.Pools(), informer.Options[*v1.IPPool]{
		Changed: c.outdate,
	})
	c.own = informer.Add(g, "blocks", client.Blocks(), informer.Options[*v1.IPBlock]{
		Fields:  own,
		Changed: c.outdate,
	})
	c.nodes = informer.Add(g, "node networks", client.NodeNetworks(), informer.Options[*v1.NodeNetwork]{
		Changed: c.outdate,
	})
	c.externals.watched = informer.Add(g, "external interfaces", client.Externals(),
		informer.Options[*v1.ExternalInterface]{Changed: c.poke})
	c.settings.watched = informer.Add(g, "configuration", client.Configs(), informer.Options[*v1.WeftConfig]{
		Changed: c.outdate,
	})
	c.definitions.watched = informer.Add(g, "network attachment definitions", client.Definitions(""),
		informer.Options[*npwg.NetworkAttachmentDefinition]{
			Optional: true,
			NoWait:   true,
			Lighten:  lightenDefinition,
			Changed:  c.poke,
		})
	c.claims.watched = informer.Add(g, "IPAM claims", client.IPAMClaims(""), informer.Options[*npwg.IPAMClaim]{
		Optional: true,
		NoWait:   true,
		Changed:  c.poke,
	})
	c.foreign = informer.Add(g, "blocks of other nodes", client.Blocks(),
		informer.Options[*v1.IPBlock]{Fields: others, Lighten: lightenBlock, Same: sameBlock, Changed: c.outdate})
	c.services = informer.Add(g, "service ranges", client.ServiceRanges(),
		informer.Options[*networkingv1.ServiceCIDR]{Optional: true, Changed: c.outdate})
}

// notice notifies the reader of the view that it may have changed.
type notice struct {
	changed chan struct{} // of capacity 1
}

// poke notifies the reader that the view may have changed. Notifications before the next read are one.
func (n notice) poke(string) {
	select {
	case n.changed <- struct{}{}:
	default:
	}
}

// Changed receives a token when the view may have changed since the last read. It has one reader.
func (n notice) Changed() <-chan struct{} { return n.changed }

// Run watches until ctx ends. It retries while the API server does not answer, and keeps its view meanwhile.
func (c *Cluster) Run(ctx context.Context) error {
	running, ctx := errgroup.WithContext(ctx)
	running.Go(func() error { return c.watches.Run(ctx) })
	running.Go(func() error { return c.Pods.Run(ctx) })
	running.Go(func() error { return c.awaitAll(ctx) })
	running.Go(func() error { return c.awaitPods(ctx) })
	return running.Wait()
}

// awaitAll notifies the reader when the view is complete, and logs the missing kinds until then.
func (c *Cluster) awaitAll(ctx context.Context) error {
	err := c.watches.Await(ctx, func(missing []string) {
		c.config.Log.Warn("the API server has not shown all objects yet", "missing", missing)
	})
	if err == nil {
		c.config.Log.Info("the cluster is known")
		c.poke("") // also if there is no object
	}
	return err
}

// onPod notifies the reader of the view if the labels of a pod may change a permission, and passes the pod on.
func (c *Cluster) onPod(ctx context.Context, id pod.ID, p *corev1.Pod) error {
	if c.addressing.networks.concerns(id, p) {
		c.poke("")
	}
	if c.config.OnPod == nil {
		return nil
	}
	return c.config.OnPod(ctx, id, p)
}

// awaitPods notifies the reader when the pods of this node are known, on which permissions depend.
func (c *Cluster) awaitPods(ctx context.Context) error {
	err := c.Pods.Await(ctx)
	if err == nil {
		c.poke("")
	}
	return err
}

// Missing lists the kinds that the API server has not shown yet and the view needs; nil: the view is complete.
func (c *Cluster) Missing() []string { return c.watches.Missing() }

// Failure returns why the view may be outdated: the API server does not answer, or denies a request; nil if all watches
// are established.
func (c *Cluster) Failure() error { return c.watches.Failure() }
