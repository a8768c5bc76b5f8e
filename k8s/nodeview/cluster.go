// Package nodeview is what the API server says about this node, its pods, and all networks and pools.
//
// It comes from watches, so that no caller waits for the API server; the exception is a pod that no watch has shown
// yet. A view is always complete and not a difference.
package nodeview

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
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

	config  Config
	changed chan struct{}
	watches *informer.Group
	mesh    meshView

	labelled map[string]labelled // pods of this node by name, as onPod saw them

	machines    *informer.Informer[*corev1.Node]
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
	claims      *informer.Informer[*npwg.IPAMClaim]
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
	cluster := &Cluster{config: c, changed: make(chan struct{}, 1), watches: informer.NewGroup(c.Log)}
	cluster.labelled = make(map[string]labelled)
	cluster.mesh.stale.Store(true)
	if c.Known != nil {
		cluster.mesh.former = c.Known.Former
	}
	cluster.Pods = pods.New(pods.Config{
		Node:     c.Node,
		Client:   c.Client,
		OnPod:    cluster.onPod,
		Question: c.Question,
		Log:      c.Log,
	})
	cluster.watch()
	return cluster, nil
}

// watch adds the informers. Of other nodes' objects it watches those that announcements are validated against.
func (c *Cluster) watch() {
	g := c.watches
	client := c.config.Client
	own := fields.OneTermEqualSelector("spec.node", c.config.Node).String()
	others := fields.OneTermNotEqualSelector("spec.node", c.config.Node).String()
	c.machines = informer.Add(g, "nodes", client.Nodes(), informer.Options[*corev1.Node]{
		Lighten: c.lightenNode,
		Same:    sameNode,
		Changed: c.pokeMesh,
	})
	c.namespaces = informer.Add(g, "namespaces", client.Namespaces(), informer.Options[*corev1.Namespace]{
		Changed: c.poke,
	})
	c.networks = informer.Add(g, "custom networks", client.Networks(), informer.Options[*v1.CustomNetwork]{
		Changed: c.pokeMesh,
	})
	c.pools = informer.Add(g, "pools", client.Pools(), informer.Options[*v1.IPPool]{Changed: c.pokeMesh})
	c.blocks = informer.Add(g, "blocks", client.Blocks(), informer.Options[*v1.IPBlock]{
		Fields:  own,
		Changed: c.pokeMesh,
	})
	c.nodes = informer.Add(g, "node networks", client.NodeNetworks(), informer.Options[*v1.NodeNetwork]{
		Changed: c.pokeMesh,
	})
	c.externals = informer.Add(g, "external interfaces", client.Externals(), informer.Options[*v1.ExternalInterface]{
		Changed: c.poke,
	})
	c.configs = informer.Add(g, "configuration", client.Configs(), informer.Options[*v1.WeftConfig]{
		Changed: c.pokeMesh,
	})
	c.definitions = informer.Add(g, "network attachment definitions", client.Definitions(""),
		informer.Options[*npwg.NetworkAttachmentDefinition]{
			Optional: true,
			NoWait:   true,
			Lighten:  lightenDefinition,
			Changed:  c.poke,
		})
	c.claims = informer.Add(g, "IPAM claims", client.IPAMClaims(""), informer.Options[*npwg.IPAMClaim]{
		Optional: true,
		NoWait:   true,
		Changed:  c.poke,
	})
	c.foreign = informer.Add(g, "blocks of other nodes", client.Blocks(),
		informer.Options[*v1.IPBlock]{Fields: others, Lighten: lightenBlock, Same: sameBlock, Changed: c.pokeMesh})
	c.services = informer.Add(g, "service ranges", client.ServiceRanges(),
		informer.Options[*networkingv1.ServiceCIDR]{Optional: true, Changed: c.pokeMesh})
}

// poke notifies the reader that the view may have changed. Notifications before the next read are one.
func (c *Cluster) poke(string) {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// pokeMesh is poke for objects that the mesh depends on.
func (c *Cluster) pokeMesh(key string) {
	c.mesh.stale.Store(true)
	c.poke(key)
}

// Changed receives a token when the view may have changed since the last read. It has one reader.
func (c *Cluster) Changed() <-chan struct{} { return c.changed }

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

// Missing lists the kinds that the API server has not shown yet and the view needs; nil: the view is complete.
func (c *Cluster) Missing() []string { return c.watches.Missing() }

// Failure returns why the view may be outdated: the API server does not answer, or denies a request; nil if all watches
// are established.
func (c *Cluster) Failure() error { return c.watches.Failure() }

// Blocks lists this node's blocks; false: the watch has not shown all yet.
func (c *Cluster) Blocks() ([]*v1.IPBlock, bool) { return c.blocks.All(), c.blocks.Synced() }

// ForeignBlock returns another node's block without its status, or nil.
func (c *Cluster) ForeignBlock(name string) *v1.IPBlock {
	b, _ := c.foreign.One(name)
	return b
}

// lightenNode keeps of a Node what is read: of other nodes addresses, podCIDRs and age.
func (c *Cluster) lightenNode(n *corev1.Node) *corev1.Node {
	light := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion, CreationTimestamp: n.CreationTimestamp,
	}}
	if n.Name == c.config.Node {
		light.Labels = n.Labels
		light.Annotations = n.Annotations
	}
	light.Spec.PodCIDRs = n.Spec.PodCIDRs
	light.Status.Addresses = n.Status.Addresses
	return light
}

func sameNode(x, y *corev1.Node) bool { return reflect.DeepEqual(nodeOf(x), nodeOf(y)) }

// lightenBlock drops the status of a block, which changes with each pod.
func lightenBlock(b *v1.IPBlock) *v1.IPBlock {
	b.ManagedFields = nil
	b.Status = v1.IPBlockStatus{}
	return b
}

func sameBlock(x, y *v1.IPBlock) bool { return x.UID == y.UID && reflect.DeepEqual(x.Spec, y.Spec) }

// lightenDefinition keeps of a NetworkAttachmentDefinition what is read. Tenants write any number of them, with up to
// 1.5 MiB each, and each agent has all of the cluster.
func lightenDefinition(d *npwg.NetworkAttachmentDefinition) *npwg.NetworkAttachmentDefinition {
	light := &npwg.NetworkAttachmentDefinition{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       d.Namespace,
			Name:            d.Name,
			UID:             d.UID,
			ResourceVersion: d.ResourceVersion,
		},
		Spec: d.Spec, Unreadable: d.Unreadable,
	}
	if size := len(d.Spec.Config); size > pod.MaxDefinition {
		light.Spec.Config = ""
		light.Unreadable = fmt.Sprintf("config: %d bytes, at most %d are read", size, pod.MaxDefinition)
	}
	if len(light.Unreadable) > maxReason {
		light.Unreadable = strings.ToValidUTF8(light.Unreadable[:maxReason], "")
	}
	return light
}

// maxReason is the maximum length in bytes of the reason why a definition is unreadable, which may quote the
// definition.
const maxReason = 300
