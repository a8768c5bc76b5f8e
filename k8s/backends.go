package k8s

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// BackendsConfig is what a [Backends] is made of. All of it is needed.
type BackendsConfig struct {
	Client    *Client
	ManagedBy string                             // of the EndpointSlices that are looked at
	Asks      func(s *corev1.Service) bool       // whether all of a Service is kept; of the others, it is what they select
	Marks     string                             // an annotation of pods, which are kept whatever selects them; of the others, it is the name
	Changed   func(service types.NamespacedName) // something of a Service may have changed; it must not wait
	Log       *slog.Logger
}

// Backends is what watches show of Services, of the EndpointSlices that somebody made for them, and of pods that they
// select: pods are watched for a Service, and by its selector. Of pods that have an annotation the metadata is watched in all
// namespaces.
type Backends struct {
	config   BackendsConfig
	services *watched[*corev1.Service]
	slices   *watched[*discoveryv1.EndpointSlice]
	marked   *watched[*metav1.PartialObjectMetadata]
	pods     map[types.NamespacedName]*selectedPods // by their Service; of who calls Pods, Forget and Close
}

// selectedPods is one watch of pods.
type selectedPods struct {
	selector string
	pods     *watched[*corev1.Pod]
	stop     func()
}

// NewBackends makes an overview of which nothing is known yet. Nothing is sent before Run.
func NewBackends(c BackendsConfig) (*Backends, error) {
	b := &Backends{config: c, pods: make(map[types.NamespacedName]*selectedPods)}
	var errs [4]error
	b.services, errs[0] = follow[*corev1.Service]("services", c.Client.Services(""), narrow{lighten: b.lightenService}, b.tell)
	managed := narrow{labels: discoveryv1.LabelManagedBy + "=" + c.ManagedBy}
	b.slices, errs[1] = follow[*discoveryv1.EndpointSlice]("endpoint slices", c.Client.EndpointSlices(""), managed, func(string) {})
	b.marked, errs[2] = b.followMarked()
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("k8s: watch: %w", err)
	}
	_, errs[0] = b.slices.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: b.tellOfSlice, DeleteFunc: b.tellOfSlice,
		UpdateFunc: func(before, now any) { b.tellOfSlice(before); b.tellOfSlice(now) },
	})
	errs[1], errs[2], errs[3] = b.services.logErrors(c.Log), b.slices.logErrors(c.Log), b.marked.logErrors(c.Log)
	return b, errors.Join(errs[:]...)
}

// lightenService keeps no more than the name of a Service that does not ask, and what it selects.
func (b *Backends) lightenService(o any) (any, error) {
	s, is := o.(*corev1.Service)
	if !is || b.config.Asks(s) {
		return lighten(o)
	}
	light := &corev1.Service{}
	light.Namespace, light.Name, light.UID, light.ResourceVersion = s.Namespace, s.Name, s.UID, s.ResourceVersion
	light.Spec.Selector, light.Spec.Type = s.Spec.Selector, s.Spec.Type
	return light, nil
}

func (b *Backends) tell(key string) {
	if namespace, name, err := cache.SplitMetaNamespaceKey(key); err == nil {
		b.config.Changed(types.NamespacedName{Namespace: namespace, Name: name})
	}
}

func (b *Backends) tellOfSlice(o any) {
	if gone, is := o.(cache.DeletedFinalStateUnknown); is {
		o = gone.Obj
	}
	if s, is := o.(*discoveryv1.EndpointSlice); is {
		b.config.Changed(serviceOf(s))
	}
}

// serviceOf is the Service that a slice is for.
func serviceOf(s *discoveryv1.EndpointSlice) types.NamespacedName {
	return types.NamespacedName{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]}
}

// Run watches Services and EndpointSlices until ctx ends.
func (b *Backends) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(quiet(ctx, b.config.Log))
	for _, run := range []func(context.Context){b.services.run, b.slices.run, b.marked.run} {
		group.Go(func() error {
			run(ctx)
			return ctx.Err()
		})
	}
	return group.Wait()
}

// Seen reports whether the API server has shown all Services and EndpointSlices once.
func (b *Backends) Seen() bool { return b.services.synced() && b.slices.synced() }

// Service finds a Service; nil: there is none of that name. It, as all that is given here, is shared: nobody changes it.
func (b *Backends) Service(id types.NamespacedName) *corev1.Service {
	s, _ := b.services.one(id.String())
	return s
}

// Slices are the EndpointSlices of a Service, be it there or not, in the order of their names.
func (b *Backends) Slices(id types.NamespacedName) []*discoveryv1.EndpointSlice {
	var list []*discoveryv1.EndpointSlice
	for _, s := range b.slices.all() {
		if serviceOf(s) == id {
			list = append(list, s)
		}
	}
	return byName(list)
}

// Pods are those of its namespace that a Service selects, in the order of their names. They are watched until Forget, or
// until another selector is given. Seen is whether all have been shown once, and Changed is not called when that is so.
func (b *Backends) Pods(ctx context.Context, id types.NamespacedName, selector string) (pods []*corev1.Pod, seen bool, err error) {
	chosen := b.pods[id]
	if chosen == nil || chosen.selector != selector {
		b.Forget(id)
		if chosen, err = b.choose(ctx, id, selector); err != nil {
			return nil, false, fmt.Errorf("k8s: watch pods: %w", err)
		}
		b.pods[id] = chosen
	}
	return byName(chosen.pods.all()), chosen.pods.synced(), nil
}

func byName[T metav1.Object](list []T) []T {
	slices.SortFunc(list, func(x, y T) int { return strings.Compare(x.GetName(), y.GetName()) })
	return list
}

func (b *Backends) choose(ctx context.Context, id types.NamespacedName, selector string) (*selectedPods, error) {
	tell := func(string) { b.config.Changed(id) }
	pods, err := follow[*corev1.Pod]("pods of a service", b.config.Client.Pods(id.Namespace), narrow{labels: selector}, tell)
	if err == nil {
		err = pods.logErrors(b.config.Log)
	}
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(quiet(ctx, b.config.Log))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		pods.run(ctx)
	}()
	return &selectedPods{selector: selector, pods: pods, stop: func() { cancel(); <-ended }}, nil
}

// Forget ends the watch of a Service's pods.
func (b *Backends) Forget(id types.NamespacedName) {
	if chosen := b.pods[id]; chosen != nil {
		chosen.stop()
		delete(b.pods, id)
	}
}

// Close ends all watches of pods.
func (b *Backends) Close() {
	for id := range b.pods {
		b.Forget(id)
	}
}
