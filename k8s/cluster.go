package k8s

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/util/workqueue"

	"github.com/weftnet/weft/k8s/api/npwg"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/pod"
)

// Config is what a [Cluster] is made of. Node and Client are needed.
type Config struct {
	Node   string // name of this node
	Client *Client

	// Known is the view of an earlier run. It stands in until the API server has shown everything.
	Known *View
	// OnPod is called for each pod of this node that is new, changed or gone, one after the other; with nil for one that
	// is gone. Several changes of a pod may be one call. After an error it is called again, later each time. Pods in the
	// node's own network are none of it.
	OnPod func(ctx context.Context, id pod.ID, p *corev1.Pod) error
	// Question bounds the one question to the API server that a pod may wait for; default 3 s.
	Question time.Duration
	Log      *slog.Logger
}

// Cluster is what this node knows of its cluster.
type Cluster struct {
	config  Config
	changed chan struct{}
	keys    workqueue.TypedRateLimitingInterface[string]

	pods        *watched[*corev1.Pod]
	machines    *watched[*corev1.Node] // of all nodes
	namespaces  *watched[*corev1.Namespace]
	networks    *watched[*v1.CustomNetwork]
	pools       *watched[*v1.IPPool]
	blocks      *watched[*v1.IPBlock] // of this node
	foreign     *watched[*v1.IPBlock] // of the other nodes, without status
	services    *watched[*networkingv1.ServiceCIDR]
	nodes       *watched[*v1.NodeNetwork]
	externals   *watched[*v1.ExternalInterface]
	configs     *watched[*v1.WeftConfig]
	definitions *watched[*npwg.NetworkAttachmentDefinition]
	watches     []follower

	mesh meshView
}

type follower interface {
	name() string
	run(ctx context.Context)
	synced() bool
	needed() bool
	logErrors(log *slog.Logger) error
}

// New makes a cluster of which nothing is known yet but what an earlier run knew. Nothing is sent before Run.
func New(c Config) (*Cluster, error) {
	if c.Node == "" || c.Client == nil {
		return nil, errors.New("k8s: Node and Client are needed")
	}
	if c.Question == 0 {
		c.Question = 3 * time.Second
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	cluster := &Cluster{config: c, changed: make(chan struct{}, 1)}
	cluster.mesh.stale.Store(true)
	if c.Known != nil {
		cluster.mesh.former = c.Known.Former
	}
	if err := cluster.watch(); err != nil {
		return nil, fmt.Errorf("k8s: watch: %w", err)
	}
	return cluster, nil
}

// watch says what is watched: of pods those of this node only, of other nodes what their announcements are validated against.
func (c *Cluster) watch() error {
	var errs [12]error
	named, all := func(field string) narrow {
		return narrow{fields: fields.OneTermEqualSelector(field, c.config.Node).String()}
	}, narrow{}
	client := c.config.Client
	pods := named("spec.nodeName")
	pods.noWait = true
	c.pods, errs[0] = follow[*corev1.Pod]("pods", client.Pods(""), pods, func(key string) { c.keys.Add(key) })
	c.machines, errs[1] = follow[*corev1.Node]("nodes", client.Nodes(), narrow{lighten: c.lightenNode, same: sameNode}, c.pokeMesh)
	c.namespaces, errs[2] = follow[*corev1.Namespace]("namespaces", client.Namespaces(), all, c.poke)
	c.networks, errs[3] = follow[*v1.CustomNetwork]("custom networks", client.Networks(), all, c.pokeMesh)
	c.pools, errs[4] = follow[*v1.IPPool]("pools", client.Pools(), all, c.pokeMesh)
	c.blocks, errs[5] = follow[*v1.IPBlock]("blocks", client.Blocks(), named("spec.node"), c.pokeMesh)
	c.nodes, errs[6] = follow[*v1.NodeNetwork]("node networks", client.NodeNetworks(), all, c.pokeMesh)
	c.externals, errs[7] = follow[*v1.ExternalInterface]("external interfaces", client.Externals(), all, c.poke)
	c.configs, errs[8] = follow[*v1.WeftConfig]("configuration", client.Configs(), all, c.pokeMesh)
	c.definitions, errs[9] = follow[*npwg.NetworkAttachmentDefinition]("network attachment definitions", client.Definitions(""), narrow{optional: true, noWait: true}, c.poke)
	others := narrow{fields: fields.OneTermNotEqualSelector("spec.node", c.config.Node).String(), lighten: lightenBlock, same: sameBlock}
	c.foreign, errs[10] = follow[*v1.IPBlock]("blocks of other nodes", client.Blocks(), others, c.pokeMesh)
	c.services, errs[11] = follow[*networkingv1.ServiceCIDR]("service ranges", client.ServiceRanges(), narrow{optional: true}, c.pokeMesh)
	c.watches = []follower{
		c.pods, c.machines, c.namespaces, c.networks, c.pools, c.blocks, c.nodes, c.externals, c.configs, c.definitions, c.foreign, c.services,
	}
	for i, w := range c.watches {
		if errs[i] == nil {
			errs[i] = w.logErrors(c.config.Log)
		}
	}
	return errors.Join(errs[:]...)
}

// poke says that the view may be another one. Nobody is told twice of what he has not looked at yet.
func (c *Cluster) poke(string) {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// pokeMesh says that other nodes may be reached another way.
func (c *Cluster) pokeMesh(key string) {
	c.mesh.stale.Store(true)
	c.poke(key)
}

// Changed is where something arrives when the view may have changed since it was looked at last. It has one reader.
func (c *Cluster) Changed() <-chan struct{} { return c.changed }

// Run watches until ctx ends. Without an API server it tries again and again; what is known stays known.
func (c *Cluster) Run(ctx context.Context) error {
	ctx = quiet(ctx, c.config.Log)
	c.keys = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	running, ctx := errgroup.WithContext(ctx)
	for _, w := range c.watches {
		running.Go(func() error {
			w.run(ctx)
			return ctx.Err()
		})
	}
	running.Go(func() error {
		<-ctx.Done()
		c.keys.ShutDown()
		return ctx.Err()
	})
	running.Go(func() error {
		for c.nextPod(ctx) {
			continue
		}
		return ctx.Err()
	})
	running.Go(func() error { return c.announce(ctx) })
	return running.Wait()
}

// announce says when everything has been seen once, and while it has not, what is missing.
func (c *Cluster) announce(ctx context.Context) error {
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	warn := time.NewTicker(30 * time.Second)
	defer warn.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-warn.C:
			c.config.Log.Warn("the API server has not shown all objects yet", "missing", c.Missing())
		case <-look.C:
			if len(c.Missing()) == 0 {
				c.config.Log.Info("the cluster is known")
				c.poke("") // the view is complete, be it without any object
				return nil
			}
		}
	}
}

// Missing names what the API server has not shown yet and the view needs; nil: the view is complete.
func (c *Cluster) Missing() []string {
	var missing []string
	for _, w := range c.watches {
		if w.needed() && !w.synced() {
			missing = append(missing, w.name())
		}
	}
	return missing
}

// Blocks are this node's blocks as the watch shows them; false: it has not shown all yet.
func (c *Cluster) Blocks() ([]*v1.IPBlock, bool) { return c.blocks.all(), c.blocks.synced() }

// ForeignBlock is another node's block, without its status, as the watch shows it; nil if it shows none of that name.
func (c *Cluster) ForeignBlock(name string) *v1.IPBlock {
	b, _ := c.foreign.one(name)
	return b
}
