// Package informer keeps copies of the objects of one kind, by a watch of the API server.
package informer

import (
	"context"
	"log/slog"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// Follower is an [Informer] of any kind.
type Follower interface {
	Name() string
	Run(ctx context.Context)
	Synced() bool
	Needed() bool
	LogErrors(log *slog.Logger) error
}

// source is where the objects of a kind come from.
type source[L runtime.Object] interface {
	List(ctx context.Context, o metav1.ListOptions) (L, error)
	Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
}

// Options is what of a kind is watched.
type Options struct {
	Fields   string
	Labels   string
	Optional bool                // whether the kind may be unknown to the API server: then there are no objects of it
	NoWait   bool                // whether the view is complete without it
	Lighten  cache.TransformFunc // keeps what is read of an object; nil: nearly everything is
	Same     func(x, y any) bool // whether a change is of no interest; nil: none is
}

// Informer is a copy of the objects of one kind, which a watch keeps as they are.
type Informer[T runtime.Object] struct {
	what   string
	noWait bool
	Shared cache.SharedIndexInformer
}

// New makes a copy that is filled while run runs. Changed is told the key of each object that is no longer as it was.
func New[T runtime.Object, L runtime.Object](what string, s source[L], n Options, changed func(key string)) (*Informer[T], error) {
	narrowed := func(o metav1.ListOptions) metav1.ListOptions {
		o.FieldSelector, o.LabelSelector = n.Fields, n.Labels
		return o
	}
	var example T
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := s.List(ctx, narrowed(o))
			if n.Optional && apierrors.IsNotFound(err) {
				return &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: "0"}}, nil
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return s.Watch(ctx, narrowed(o))
		},
	}
	w := &Informer[T]{what: what, noWait: n.NoWait, Shared: cache.NewSharedIndexInformer(lw, example, 0, cache.Indexers{})}
	tell := func(o any) {
		// A delete that no watch saw comes as a tombstone, whose key is the object's.
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(o); err == nil {
			changed(key)
		}
	}
	if n.Lighten == nil {
		n.Lighten = Lighten
	}
	if err := w.Shared.SetTransform(n.Lighten); err != nil {
		return nil, err
	}
	_, err := w.Shared.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: tell, DeleteFunc: tell, UpdateFunc: func(before, after any) {
			if n.Same == nil || !n.Same(before, after) {
				tell(after)
			}
		},
	})
	return w, err
}

// Lighten drops fields that the node does not read, often half of an object.
func Lighten(o any) (any, error) {
	if m, err := meta.Accessor(o); err == nil {
		m.SetManagedFields(nil)
	}
	if n, is := o.(*corev1.Node); is {
		n.Status.Images = nil
	}
	return o, nil
}

// LogErrors logs interruptions of the watch. It is called before Run.
func (w *Informer[T]) LogErrors(log *slog.Logger) error {
	return w.Shared.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		log.Debug("watch is interrupted and will be tried again", "objects", w.what, "err", err)
	})
}

// Quiet makes all lines of client-go, which logs by what is in the context, details.
func Quiet(ctx context.Context, log *slog.Logger) context.Context {
	return klog.NewContext(ctx, logr.FromSlogHandler(log.Handler()).V(4))
}

// Run watches until ctx ends.
func (w *Informer[T]) Run(ctx context.Context) { w.Shared.RunWithContext(ctx) }

// Name is what the objects are called in messages.
func (w *Informer[T]) Name() string { return w.what }

// Synced reports whether all objects have been seen once.
func (w *Informer[T]) Synced() bool { return w.Shared.HasSynced() }

// Needed reports whether a view is incomplete until all objects have been seen once.
func (w *Informer[T]) Needed() bool { return !w.noWait }

// All lists the objects. They are shared and must not be changed.
func (w *Informer[T]) All() []T {
	var objects []T
	for _, o := range w.Shared.GetStore().List() {
		if object, ok := o.(T); ok {
			objects = append(objects, object)
		}
	}
	return objects
}

// One returns an object by its key, "name" or "namespace/name".
func (w *Informer[T]) One(key string) (T, bool) {
	o, exists, err := w.Shared.GetStore().GetByKey(key)
	object, ok := o.(T)
	return object, exists && ok && err == nil
}
