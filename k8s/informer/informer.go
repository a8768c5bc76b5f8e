// Package informer keeps copies of objects of the API server by watches.
package informer

import (
	"context"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// warnAfter is the time without an answer of the API server until a warning.
const warnAfter = 30 * time.Second

// Group is informers that run together.
type Group struct {
	log     *slog.Logger
	members []member
	answers answers
}

type member struct {
	cache.SharedIndexInformer
	objects string // plural, for messages
	noWait  bool
}

// NewGroup makes a group without informers.
func NewGroup(log *slog.Logger) *Group { return &Group{log: log} }

// Run watches until ctx ends. It retries a watch until the API server answers; the copies stay meanwhile.
func (g *Group) Run(ctx context.Context) error {
	// client-go logs to the logger of the context: all its lines are details.
	running, ctx := errgroup.WithContext(klog.NewContext(ctx, logr.FromSlogHandler(g.log.Handler()).V(4)))
	for _, m := range g.members {
		running.Go(func() error {
			m.RunWithContext(ctx)
			return ctx.Err()
		})
	}
	return running.Wait()
}

// Missing lists the kinds that the API server has not shown completely yet, without those with [Options.NoWait].
func (g *Group) Missing() []string {
	var missing []string
	for _, m := range g.members {
		if !m.noWait && !m.HasSynced() {
			missing = append(missing, m.objects)
		}
	}
	return missing
}

// Await waits until Missing lists no kind. It calls warn every 30 s.
func (g *Group) Await(ctx context.Context, warn func(missing []string)) error {
	next := time.Now().Add(warnAfter)
	return wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(context.Context) (done bool, _ error) {
		missing := g.Missing()
		if len(missing) > 0 && time.Now().After(next) {
			warn(missing)
			next = next.Add(warnAfter)
		}
		return len(missing) == 0, nil
	})
}

// Options select and reduce the objects that are watched. All are optional.
type Options[T any] struct {
	Fields   string
	Labels   string
	Optional bool                       // if the API server does not know the kind there are no objects of it
	NoWait   bool                       // [Group.Missing] ignores the kind
	Lighten  func(T) T                  // reduces an object to what is read; default: drops what no reader needs
	Same     func(before, after T) bool // reports whether a change is ignored; default: none is
	Changed  func(key string)           // see [Informer.OnChange]
}

// Informer is a copy of the objects of one kind, which a watch keeps up to date.
type Informer[T runtime.Object] struct {
	shared cache.SharedIndexInformer
	same   func(before, after T) bool
}

// source is access to the objects of a kind.
type source[L runtime.Object] interface {
	List(ctx context.Context, o metav1.ListOptions) (L, error)
	Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
}

// Add adds an informer to a group that does not run yet. Objects is their name in messages.
func Add[T, L runtime.Object](g *Group, objects string, s source[L], o Options[T]) *Informer[T] {
	selected := func(list metav1.ListOptions) metav1.ListOptions {
		list.FieldSelector = o.Fields
		list.LabelSelector = o.Labels
		return list
	}
	var example T
	shared := cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, list metav1.ListOptions) (runtime.Object, error) {
			all, err := s.List(ctx, selected(list))
			if o.Optional && apierrors.IsNotFound(err) {
				g.answers.record(objects, nil)
				return &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: "0"}}, nil
			}
			g.answers.record(objects, err)
			return all, err
		},
		WatchFuncWithContext: func(ctx context.Context, list metav1.ListOptions) (watch.Interface, error) {
			w, err := s.Watch(ctx, selected(list))
			if !o.Optional || !apierrors.IsNotFound(err) {
				g.answers.record(objects, resultOf(w, err))
			}
			return w, err
		},
	}, example, 0, cache.Indexers{})
	transform := lighten
	if o.Lighten != nil {
		transform = func(object any) (any, error) {
			if t, is := object.(T); is {
				return o.Lighten(t), nil
			}
			return object, nil // a tombstone
		}
	}
	// These calls, and those of handle and Index, fail only after Run has begun or ended.
	_ = shared.SetTransform(transform)
	_ = shared.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		g.log.Debug("watch interrupted, retrying", "objects", objects, "err", err)
	})
	g.members = append(g.members, member{shared, objects, o.NoWait})
	in := &Informer[T]{shared: shared, same: o.Same}
	if o.Changed != nil {
		in.OnChange(o.Changed)
	}
	return in
}

// lighten drops fields that no reader needs, often half of an object.
func lighten(o any) (any, error) {
	if m, err := meta.Accessor(o); err == nil {
		m.SetManagedFields(nil)
	}
	if n, is := o.(*corev1.Node); is {
		n.Status.Images = nil
	}
	return o, nil
}

// OnChange calls changed with the key of each object that is new, changed or gone.
func (in *Informer[T]) OnChange(changed func(key string)) {
	tell := func(o any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(o); err == nil {
			changed(key)
		}
	}
	in.handle(tell, func(_, after any) { tell(after) })
}

// OnObject calls f with each object that is new or gone, and with both versions of one that changed.
func (in *Informer[T]) OnObject(f func(T)) {
	tell := func(o any) {
		if gone, is := o.(cache.DeletedFinalStateUnknown); is {
			o = gone.Obj
		}
		if object, is := o.(T); is {
			f(object)
		}
	}
	in.handle(tell, func(before, after any) { tell(before); tell(after) })
}

// OnGroup calls f with the group of each object that is new or gone, and of both versions of one that changed: once if
// it is the same group.
func (in *Informer[T]) OnGroup(of func(T) string, f func(group string)) {
	tell := func(o any) {
		if gone, is := o.(cache.DeletedFinalStateUnknown); is {
			o = gone.Obj
		}
		if object, is := o.(T); is {
			f(of(object))
		}
	}
	in.handle(tell, func(before, after any) {
		x, is := before.(T)
		y, are := after.(T)
		if is && are && of(x) != of(y) {
			f(of(x))
		}
		tell(after)
	})
}

func (in *Informer[T]) handle(tell func(any), update func(before, after any)) {
	_, _ = in.shared.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    tell,
		DeleteFunc: tell,
		UpdateFunc: func(before, after any) {
			x, is := before.(T)
			y, are := after.(T)
			if in.same == nil || !is || !are || !in.same(x, y) {
				update(before, after)
			}
		},
	})
}

// Index makes ByIndex find objects by the values that of returns for them.
func (in *Informer[T]) Index(name string, of func(T) []string) {
	_ = in.shared.AddIndexers(cache.Indexers{name: func(o any) ([]string, error) {
		if object, is := o.(T); is {
			return of(object), nil
		}
		return nil, nil
	}})
}

// Synced reports whether the API server has shown all objects once.
func (in *Informer[T]) Synced() bool { return in.shared.HasSynced() }

// All lists the objects. They are shared and must not be changed.
func (in *Informer[T]) All() []T { return typed[T](in.shared.GetStore().List()) }

// ByIndex lists the objects with a value in an index, like All.
func (in *Informer[T]) ByIndex(name, value string) []T {
	objects, _ := in.shared.GetIndexer().ByIndex(name, value) // fails only without the index
	return typed[T](objects)
}

func typed[T any](objects []any) []T {
	var list []T
	for _, o := range objects {
		if object, ok := o.(T); ok {
			list = append(list, object)
		}
	}
	return list
}

// One returns an object by its key, "name" or "namespace/name".
func (in *Informer[T]) One(key string) (T, bool) {
	o, exists, err := in.shared.GetStore().GetByKey(key)
	object, ok := o.(T)
	return object, exists && ok && err == nil
}

// Queue holds keys for [Work].
type Queue[K comparable] = workqueue.TypedRateLimitingInterface[K]

// NewQueue makes a queue with the pauses between the tries of a key.
func NewQueue[K comparable](minPause, maxPause time.Duration) Queue[K] {
	return workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[K](minPause,
		maxPause))
}

// Work handles the keys of a queue one after another until ctx ends, which shuts the queue down. After an error it
// handles the key again, later each time.
func Work[K comparable](
	ctx context.Context, queue Queue[K], handle func(context.Context, K) error,
) error {
	stop := context.AfterFunc(ctx, queue.ShutDown)
	defer stop()
	for {
		key, over := queue.Get()
		if over {
			return ctx.Err()
		}
		if err := handle(ctx, key); err != nil {
			queue.AddRateLimited(key)
		} else {
			queue.Forget(key)
		}
		queue.Done(key)
	}
}
