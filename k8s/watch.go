package k8s

import (
	"context"
	"log/slog"
	"reflect"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	v1 "github.com/weftnet/weft/k8s/api/v1"
)

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

// lighten drops what nobody here reads, and which is often half of an object.
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
