package k8s

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
		AddFunc: tell, DeleteFunc: tell, UpdateFunc: func(_, o any) { tell(o) },
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

// all lists the objects. They are shared: nobody changes them.
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
