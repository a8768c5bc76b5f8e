// Package nodeview is the node's view of the cluster: what the API server says about this node, its pods, and the networks and
// pools of all.
//
// Everything comes from watches, so that no caller waits for the API server; the exception is a pod whose annotations no
// watch has shown yet. What is handed on is always the whole state, never a change of it.
package nodeview

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/weftnet/weft/k8s/api/npwg"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/client"
	"github.com/weftnet/weft/k8s/informer"
	"github.com/weftnet/weft/k8s/pods"
	"github.com/weftnet/weft/pod"
)

// Config is what a [Cluster] is made of. Node and Client are needed.
type Config struct {
	Node   string // name of this node
	Client *client.Client

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
	*pods.Pods // of this node

	config  Config
	changed chan struct{}

	machines    *informer.Informer[*corev1.Node] // of all nodes
	namespaces  *informer.Informer[*corev1.Namespace]
	networks    *informer.Informer[*v1.CustomNetwork]
	pools       *informer.Informer[*v1.IPPool]
	blocks      *informer.Informer[*v1.IPBlock] // of this node
	foreign     *informer.Informer[*v1.IPBlock] // of the other nodes, without status
	services    *informer.Informer[*networkingv1.ServiceCIDR]
	nodes       *informer.Informer[*v1.NodeNetwork]
	externals   *informer.Informer[*v1.ExternalInterface]
	configs     *informer.Informer[*v1.WeftConfig]
	definitions *informer.Informer[*npwg.NetworkAttachmentDefinition]
	watches     []informer.Follower

	mesh meshView
}

// New makes a cluster of which nothing is known yet but what an earlier run knew. Nothing is sent before Run.
func New(c Config) (*Cluster, error) {
	if c.Node == "" || c.Client == nil {
		return nil, errors.New("nodeview: Node and Client are needed")
	}
	c.Question = cmp.Or(c.Question, 3*time.Second)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	cluster := &Cluster{config: c, changed: make(chan struct{}, 1)}
	cluster.mesh.stale.Store(true)
	if c.Known != nil {
		cluster.mesh.former = c.Known.Former
	}
	if err := cluster.watch(); err != nil {
		return nil, fmt.Errorf("nodeview: watch: %w", err)
	}
	return cluster, nil
}

// watch says what is watched: of pods those of this node only, of other nodes what their announcements are validated against.
func (c *Cluster) watch() error {
	var errs [12]error
	named, all := func(field string) informer.Options {
		return informer.Options{Fields: fields.OneTermEqualSelector(field, c.config.Node).String()}
	}, informer.Options{}
	client := c.config.Client
	c.Pods, errs[11] = pods.New(pods.Config{Node: c.config.Node, Client: client, OnPod: c.config.OnPod, Question: c.config.Question, Log: c.config.Log})
	c.machines, errs[0] = informer.New[*corev1.Node]("nodes", client.Nodes(), informer.Options{Lighten: c.lightenNode, Same: sameNode}, c.pokeMesh)
	c.namespaces, errs[1] = informer.New[*corev1.Namespace]("namespaces", client.Namespaces(), all, c.poke)
	c.networks, errs[2] = informer.New[*v1.CustomNetwork]("custom networks", client.Networks(), all, c.pokeMesh)
	c.pools, errs[3] = informer.New[*v1.IPPool]("pools", client.Pools(), all, c.pokeMesh)
	c.blocks, errs[4] = informer.New[*v1.IPBlock]("blocks", client.Blocks(), named("spec.node"), c.pokeMesh)
	c.nodes, errs[5] = informer.New[*v1.NodeNetwork]("node networks", client.NodeNetworks(), all, c.pokeMesh)
	c.externals, errs[6] = informer.New[*v1.ExternalInterface]("external interfaces", client.Externals(), all, c.poke)
	c.configs, errs[7] = informer.New[*v1.WeftConfig]("configuration", client.Configs(), all, c.pokeMesh)
	c.definitions, errs[8] = informer.New[*npwg.NetworkAttachmentDefinition]("network attachment definitions", client.Definitions(""), informer.Options{Optional: true, NoWait: true}, c.poke)
	others := informer.Options{Fields: fields.OneTermNotEqualSelector("spec.node", c.config.Node).String(), Lighten: lightenBlock, Same: sameBlock}
	c.foreign, errs[9] = informer.New[*v1.IPBlock]("blocks of other nodes", client.Blocks(), others, c.pokeMesh)
	c.services, errs[10] = informer.New[*networkingv1.ServiceCIDR]("service ranges", client.ServiceRanges(), informer.Options{Optional: true}, c.pokeMesh)
	c.watches = []informer.Follower{
		c.machines, c.namespaces, c.networks, c.pools, c.blocks, c.nodes, c.externals, c.configs, c.definitions, c.foreign, c.services,
	}
	for i, w := range c.watches {
		if errs[i] == nil {
			errs[i] = w.LogErrors(c.config.Log)
		}
	}
	return errors.Join(errs[:]...)
}

// poke notifies the reader that the view may have changed. Notifications before the next read are one.
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
	ctx = informer.Quiet(ctx, c.config.Log)
	running, ctx := errgroup.WithContext(ctx)
	for _, w := range c.watches {
		running.Go(func() error {
			w.Run(ctx)
			return ctx.Err()
		})
	}
	running.Go(func() error { return c.Pods.Run(ctx) })
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
		if w.Needed() && !w.Synced() {
			missing = append(missing, w.Name())
		}
	}
	return missing
}

// Blocks are this node's blocks as the watch shows them; false: it has not shown all yet.
func (c *Cluster) Blocks() ([]*v1.IPBlock, bool) { return c.blocks.All(), c.blocks.Synced() }

// ForeignBlock is another node's block, without its status, as the watch shows it; nil if it shows none of that name.
func (c *Cluster) ForeignBlock(name string) *v1.IPBlock {
	b, _ := c.foreign.One(name)
	return b
}

// lightenNode drops all of a Node but what is read of it: of other nodes their addresses and podCIDRs.
func (c *Cluster) lightenNode(o any) (any, error) {
	n, is := o.(*corev1.Node)
	if !is {
		return o, nil // a tombstone
	}
	light := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion}}
	if n.Name == c.config.Node {
		light.Labels, light.Annotations = n.Labels, n.Annotations
	}
	light.Spec.PodCIDRs, light.Status.Addresses = n.Spec.PodCIDRs, n.Status.Addresses
	return light, nil
}

// sameNode reports whether two versions of a Node differ in nothing that is read.
func sameNode(x, y any) bool {
	before, is := x.(*corev1.Node)
	after, are := y.(*corev1.Node)
	return is && are && reflect.DeepEqual(nodeOf(before), nodeOf(after))
}

// lightenBlock drops the status of a block, which changes with each pod.
func lightenBlock(o any) (any, error) {
	b, is := o.(*v1.IPBlock)
	if is {
		b.ManagedFields, b.Status = nil, v1.IPBlockStatus{}
	}
	return o, nil
}

// sameBlock reports whether two versions of a block differ in their status only.
func sameBlock(x, y any) bool {
	before, is := x.(*v1.IPBlock)
	after, are := y.(*v1.IPBlock)
	return is && are && before.UID == after.UID && reflect.DeepEqual(before.Spec, after.Spec)
}
