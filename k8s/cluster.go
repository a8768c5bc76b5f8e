package k8s

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"reflect"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/k8s/announcement"
	"github.com/weftnet/weft/k8s/api/npwg"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/blocks"
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

// source is where the objects of a kind come from.
type source[L runtime.Object] interface {
	List(ctx context.Context, o metav1.ListOptions) (L, error)
	Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
}

// narrow is what of a kind is watched.
type narrow struct {
	fields   string
	labels   string
	optional bool                // whether the kind may be unknown to the API server: then there are no objects of it
	noWait   bool                // whether the view is complete without it
	lighten  cache.TransformFunc // keeps what is read of an object; nil: nearly everything is
	same     func(x, y any) bool // whether a change is of no interest; nil: none is
}

// watched is a copy of the objects of one kind, which a watch keeps as they are.
type watched[T runtime.Object] struct {
	what     string
	noWait   bool
	informer cache.SharedIndexInformer
}

// follow makes a copy that is filled while run runs. Changed is told the key of each object that is no longer as it was.
func follow[T runtime.Object, L runtime.Object](what string, s source[L], n narrow, changed func(key string)) (*watched[T], error) {
	narrowed := func(o metav1.ListOptions) metav1.ListOptions {
		o.FieldSelector, o.LabelSelector = n.fields, n.labels
		return o
	}
	var example T
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := s.List(ctx, narrowed(o))
			if n.optional && apierrors.IsNotFound(err) {
				return &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: "0"}}, nil
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return s.Watch(ctx, narrowed(o))
		},
	}
	w := &watched[T]{what: what, noWait: n.noWait, informer: cache.NewSharedIndexInformer(lw, example, 0, cache.Indexers{})}
	tell := func(o any) {
		// A delete that no watch saw comes as a tombstone, whose key is the object's.
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(o); err == nil {
			changed(key)
		}
	}
	if n.lighten == nil {
		n.lighten = lighten
	}
	if err := w.informer.SetTransform(n.lighten); err != nil {
		return nil, err
	}
	_, err := w.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: tell, DeleteFunc: tell, UpdateFunc: func(before, after any) {
			if n.same == nil || !n.same(before, after) {
				tell(after)
			}
		},
	})
	return w, err
}

// lighten drops fields that the node does not read, often half of an object.
func lighten(o any) (any, error) {
	if m, err := meta.Accessor(o); err == nil {
		m.SetManagedFields(nil)
	}
	if n, is := o.(*corev1.Node); is {
		n.Status.Images = nil
	}
	return o, nil
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

func (w *watched[T]) logErrors(log *slog.Logger) error {
	return w.informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		log.Debug("watch is interrupted and will be tried again", "objects", w.what, "err", err)
	})
}

// quiet makes all lines of client-go, which logs by what is in the context, details.
func quiet(ctx context.Context, log *slog.Logger) context.Context {
	return klog.NewContext(ctx, logr.FromSlogHandler(log.Handler()).V(4))
}

func (w *watched[T]) run(ctx context.Context) { w.informer.RunWithContext(ctx) }

func (w *watched[T]) name() string { return w.what }

// synced reports whether all objects have been seen once.
func (w *watched[T]) synced() bool { return w.informer.HasSynced() }

func (w *watched[T]) needed() bool { return !w.noWait }

// all lists the objects. They are shared and must not be changed.
func (w *watched[T]) all() []T {
	var objects []T
	for _, o := range w.informer.GetStore().List() {
		if object, ok := o.(T); ok {
			objects = append(objects, object)
		}
	}
	return objects
}

func (w *watched[T]) one(key string) (T, bool) {
	o, exists, err := w.informer.GetStore().GetByKey(key)
	object, ok := o.(T)
	return object, exists && ok && err == nil
}

// View is what the cluster says at one time, in the shapes that the node works with. As JSON it is what is kept of it
// over a restart.
type View struct {
	// Complete is whether the API server has shown everything; else the view is that of an earlier run, or empty.
	Complete bool `json:"-"`

	Paused   string        `json:"paused,omitempty"` // why no pod is to be wired; "": they are
	Switches Switches      `json:"switches,omitzero"`
	Node     Node          `json:"node"`
	Networks []pod.Network `json:"networks,omitempty"` // by age, so that of two that exclude each other the older one stays
	Pools    []Pool        `json:"pools,omitempty"`    // by age too

	NamespacePools map[string][]string   `json:"namespacePools,omitempty"` // by namespace, the pools that its annotation names
	Externals      []External            `json:"externals,omitempty"`      // of this node
	Definitions    map[string]Definition `json:"definitions,omitempty"`    // by namespace/name
	Generations    map[string]int64      `json:"generations,omitempty"`    // of Networks, by name
	BlockSizes     map[string]BlockSizes `json:"blockSizes,omitempty"`     // of Networks, by name
	Deleting       []string              `json:"deleting,omitempty"`       // names of networks that are being deleted, including invalid ones

	Former announcement.Former `json:"former,omitzero"` // what grants of other nodes are gone and still in use

	// Faults are the objects that are not as they should be, and why. Most of them are not used.
	Faults []Fault `json:"faults,omitempty"`
}

// Switches are those of the WeftConfig that the node obeys.
type Switches struct {
	Marks         blocks.Marks `json:"marks"`
	Borrowing     bool         `json:"borrowing,omitempty"`
	PodInterfaces bool         `json:"podInterfaces,omitempty"`
}

// Pool is an IPPool as this node may use it.
type Pool struct {
	ipam.Pool        // as a whole: of a node's own addresses are its blocks
	Bits      int    `json:"bits"`             // of its blocks
	Strict    bool   `json:"strict,omitempty"` // never borrow
	Foreign   bool   `json:"foreign,omitempty"`
	Why       string `json:"why,omitempty"` // it is not used at all
}

// BlockSizes are the prefix lengths of a network's blocks.
type BlockSizes struct {
	V4 int `json:"v4"`
	V6 int `json:"v6"`
}

// of is the prefix length of a block with the prefix' family; those that say none have the default.
func (s BlockSizes) of(prefix netip.Prefix) int {
	if prefix.Addr().Is4() {
		return cmp.Or(s.V4, blocks.DefaultBits4)
	}
	return cmp.Or(s.V6, blocks.DefaultBits6)
}

// Node is this node.
type Node struct {
	UID       string            `json:"uid,omitempty"` // "": the API server has no such node
	Labels    map[string]string `json:"labels,omitempty"`
	PodCIDRs  []netip.Prefix    `json:"podCIDRs,omitempty"`
	Addresses []netip.Addr      `json:"addresses,omitempty"` // at which others reach it
	Pools     []string          `json:"pools,omitempty"`     // that its annotation names
}

// External is an interface of this node that connects a network with the outside.
type External struct {
	pod.External       // by the name of the ExternalInterface
	Generation   int64 `json:"generation,omitempty"` // of that
}

// Definition is a NetworkAttachmentDefinition.
type Definition struct {
	Config string `json:"config,omitempty"` // JSON of CNI
}

// Fault is an object that is not as it should be.
type Fault struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	Why  string `json:"why"`
}

// String is the fault in one line.
func (f Fault) String() string { return fmt.Sprintf("%s %s: %s", f.Kind, f.Name, f.Why) }

// View is what the cluster says now. While the API server has not shown everything it is what an earlier run knew.
func (c *Cluster) View() View {
	if len(c.Missing()) > 0 {
		if c.config.Known == nil {
			return View{Switches: Switches{Marks: blocks.DefaultMarks()}}
		}
		return *c.config.Known
	}
	v := emptyView()
	v.Complete = true
	v.Node = c.thisNode()
	c.switches(&v)
	c.customNetworks(&v)
	c.ipPools(&v)
	c.namespacePools(&v)
	c.externalInterfaces(&v)
	c.attachmentDefinitions(&v)
	v.Former = c.mesh.inUse()
	return v
}

func emptyView() View {
	return View{Generations: make(map[string]int64), BlockSizes: make(map[string]BlockSizes)}
}

// ClaimedFrom lists what blocks are claimed from: each pool that this node uses, and the addresses of each network, of
// which a node claims blocks when the first of its pods needs one.
func (v *View) ClaimedFrom() []blocks.Pool {
	var pools []blocks.Pool
	for _, p := range v.Pools {
		if p.Why != "" {
			continue
		}
		pools = append(pools, blocks.Pool{
			Name: p.Name, Prefix: p.Prefix, Bits: p.Bits, Closed: p.Disabled || p.Foreign, Borrowing: v.Switches.Borrowing && !p.Strict,
		})
	}
	for _, n := range v.Networks {
		for _, p := range n.CIDRs {
			pools = append(pools, blocks.Pool{Network: n.Name, Prefix: p, Bits: v.BlockSizes[n.Name].of(p), OnDemand: true})
		}
	}
	return pools
}

// AllocatorPools are the pools of the node's allocator, in the order in which they are tried: their addresses are given
// out as blocks of them come, see [Local].
func (v *View) AllocatorPools() []ipam.Pool {
	var pools []ipam.Pool
	for _, p := range v.Pools {
		if p.Why == "" {
			pool := p.Pool
			pool.Disabled, pool.Blocks = p.Disabled || p.Foreign, true
			pools = append(pools, pool)
		}
	}
	return pools
}
