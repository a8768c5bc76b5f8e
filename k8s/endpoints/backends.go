package endpoints

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
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/weftnet/weft/k8s/client"
	"github.com/weftnet/weft/k8s/informer"
)

// backendsConfig is what a [backends] is made of. All of it is needed.
type backendsConfig struct {
	Client    *client.Client
	ManagedBy string                             // of the EndpointSlices that are looked at
	Asks      func(s *corev1.Service) bool       // whether all of a Service is kept; of the others, it is what they select
	Marks     string                             // an annotation of pods, which are kept whatever selects them; of the others, it is the name
	Changed   func(service types.NamespacedName) // something of a Service may have changed; it must not wait
	Log       *slog.Logger
}

// backends is what watches show of Services, of the EndpointSlices that users made for them, and of pods that they
// select: pods are watched for a Service, and by its selector. Of pods that have an annotation the metadata is watched in all
// namespaces.
type backends struct {
	config   backendsConfig
	services *informer.Informer[*corev1.Service]
	slices   *informer.Informer[*discoveryv1.EndpointSlice]
	marked   *informer.Informer[*metav1.PartialObjectMetadata]
	pods     map[types.NamespacedName]*selectedPods // by their Service; of who calls Pods, Forget and Close
}

// selectedPods is one watch of pods.
type selectedPods struct {
	selector string
	pods     *informer.Informer[*corev1.Pod]
	stop     func()
}

// newBackends makes an overview of which nothing is known yet. Nothing is sent before Run.
func newBackends(c backendsConfig) (*backends, error) {
	b := &backends{config: c, pods: make(map[types.NamespacedName]*selectedPods)}
	var errs [4]error
	b.services, errs[0] = informer.New[*corev1.Service]("services", c.Client.Services(""), informer.Options{Lighten: b.lightenService}, b.tell)
	managed := informer.Options{Labels: discoveryv1.LabelManagedBy + "=" + c.ManagedBy}
	b.slices, errs[1] = informer.New[*discoveryv1.EndpointSlice]("endpoint slices", c.Client.EndpointSlices(""), managed, func(string) {})
	b.marked, errs[2] = b.followMarked()
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("endpoints: watch: %w", err)
	}
	_, errs[0] = b.slices.Shared.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: b.tellOfSlice, DeleteFunc: b.tellOfSlice,
		UpdateFunc: func(before, now any) { b.tellOfSlice(before); b.tellOfSlice(now) },
	})
	errs[1], errs[2], errs[3] = b.services.LogErrors(c.Log), b.slices.LogErrors(c.Log), b.marked.LogErrors(c.Log)
	return b, errors.Join(errs[:]...)
}

// lightenService keeps no more than the name of a Service that does not ask, and what it selects.
func (b *backends) lightenService(o any) (any, error) {
	s, is := o.(*corev1.Service)
	if !is || b.config.Asks(s) {
		return informer.Lighten(o)
	}
	light := &corev1.Service{}
	light.Namespace, light.Name, light.UID, light.ResourceVersion = s.Namespace, s.Name, s.UID, s.ResourceVersion
	light.Spec.Selector, light.Spec.Type = s.Spec.Selector, s.Spec.Type
	return light, nil
}

func (b *backends) tell(key string) {
	if namespace, name, err := cache.SplitMetaNamespaceKey(key); err == nil {
		b.config.Changed(types.NamespacedName{Namespace: namespace, Name: name})
	}
}

func (b *backends) tellOfSlice(o any) {
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
func (b *backends) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(informer.Quiet(ctx, b.config.Log))
	for _, run := range []func(context.Context){b.services.Run, b.slices.Run, b.marked.Run} {
		group.Go(func() error {
			run(ctx)
			return ctx.Err()
		})
	}
	return group.Wait()
}

// Seen reports whether the API server has shown all Services and EndpointSlices once.
func (b *backends) Seen() bool { return b.services.Synced() && b.slices.Synced() }

// Service finds a Service; nil: there is none of that name. Like all results here it is shared: do not change it.
func (b *backends) Service(id types.NamespacedName) *corev1.Service {
	s, _ := b.services.One(id.String())
	return s
}

// Slices are the EndpointSlices of a Service, be it there or not, in the order of their names.
func (b *backends) Slices(id types.NamespacedName) []*discoveryv1.EndpointSlice {
	var list []*discoveryv1.EndpointSlice
	for _, s := range b.slices.All() {
		if serviceOf(s) == id {
			list = append(list, s)
		}
	}
	return byName(list)
}

// Pods are those of its namespace that a Service selects, in the order of their names. They are watched until Forget, or
// until another selector is given. Seen is whether all have been shown once, and Changed is not called when that is so.
func (b *backends) Pods(ctx context.Context, id types.NamespacedName, selector string) (pods []*corev1.Pod, seen bool, err error) {
	chosen := b.pods[id]
	if chosen == nil || chosen.selector != selector {
		b.Forget(id)
		if chosen, err = b.choose(ctx, id, selector); err != nil {
			return nil, false, fmt.Errorf("endpoints: watch pods: %w", err)
		}
		b.pods[id] = chosen
	}
	return byName(chosen.pods.All()), chosen.pods.Synced(), nil
}

func byName[T metav1.Object](list []T) []T {
	slices.SortFunc(list, func(x, y T) int { return strings.Compare(x.GetName(), y.GetName()) })
	return list
}

func (b *backends) choose(ctx context.Context, id types.NamespacedName, selector string) (*selectedPods, error) {
	tell := func(string) { b.config.Changed(id) }
	pods, err := informer.New[*corev1.Pod]("pods of a service", b.config.Client.Pods(id.Namespace), informer.Options{Labels: selector}, tell)
	if err == nil {
		err = pods.LogErrors(b.config.Log)
	}
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(informer.Quiet(ctx, b.config.Log))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		pods.Run(ctx)
	}()
	return &selectedPods{selector: selector, pods: pods, stop: func() { cancel(); <-ended }}, nil
}

// Forget ends the watch of a Service's pods.
func (b *backends) Forget(id types.NamespacedName) {
	if chosen := b.pods[id]; chosen != nil {
		chosen.stop()
		delete(b.pods, id)
	}
}

// Close ends all watches of pods.
func (b *backends) Close() {
	for id := range b.pods {
		b.Forget(id)
	}
}

// Indexes of what a [backends] keeps, both by namespace.
const (
	byMark   = "marked"    // of pods: those with the annotation
	bySelect = "selecting" // of Services: those that select pods
)

// followMarked watches the metadata of all pods. A Service is told of pods with the annotation only, and not of their status.
func (b *backends) followMarked() (*informer.Informer[*metav1.PartialObjectMetadata], error) {
	pods := b.config.Client.PodMetadata()
	w, err := informer.New[*metav1.PartialObjectMetadata]("metadata of pods", pods, informer.Options{Lighten: b.lightenPod}, func(string) {})
	if err != nil {
		return nil, err
	}
	_, err = w.Shared.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: b.tellOfPod, DeleteFunc: b.tellOfPod,
		UpdateFunc: func(before, now any) {
			if !sameMark(before, now) {
				b.tellOfPod(before)
				b.tellOfPod(now)
			}
		},
	})
	return w, errors.Join(err,
		w.Shared.AddIndexers(cache.Indexers{byMark: b.markOf}), b.services.Shared.AddIndexers(cache.Indexers{bySelect: selectionOf}))
}

// lightenPod keeps no more than the name of a pod without the annotation, and else also that and the labels.
func (b *backends) lightenPod(o any) (any, error) {
	p, is := o.(*metav1.PartialObjectMetadata)
	if !is {
		return o, nil // a tombstone
	}
	light := &metav1.PartialObjectMetadata{}
	light.Namespace, light.Name, light.ResourceVersion = p.Namespace, p.Name, p.ResourceVersion
	if mark := p.Annotations[b.config.Marks]; mark != "" {
		light.Labels, light.Annotations = p.Labels, map[string]string{b.config.Marks: mark}
	}
	return light, nil
}

func (b *backends) markOf(o any) ([]string, error) {
	if p, is := o.(*metav1.PartialObjectMetadata); is && len(p.Annotations) > 0 {
		return []string{p.Namespace}, nil
	}
	return nil, nil
}

// sameMark reports whether two versions of a pod differ in nothing that is kept but the version.
func sameMark(x, y any) bool {
	before, is := x.(*metav1.PartialObjectMetadata)
	after, are := y.(*metav1.PartialObjectMetadata)
	return is && are && labels.Equals(before.Labels, after.Labels) && labels.Equals(before.Annotations, after.Annotations)
}

// selectionOf is the namespace of a Service for which Kubernetes makes endpoints.
func selectionOf(o any) ([]string, error) {
	if s, is := o.(*corev1.Service); is && len(s.Spec.Selector) > 0 && s.Spec.Type != corev1.ServiceTypeExternalName {
		return []string{s.Namespace}, nil
	}
	return nil, nil
}

// tellOfPod tells the Services that select a pod with the annotation.
func (b *backends) tellOfPod(o any) {
	if gone, is := o.(cache.DeletedFinalStateUnknown); is {
		o = gone.Obj
	}
	p, is := o.(*metav1.PartialObjectMetadata)
	if !is || len(p.Annotations) == 0 {
		return
	}
	services, _ := b.services.Shared.GetIndexer().ByIndex(bySelect, p.Namespace) // fails without that index only
	for _, o := range services {
		if s, is := o.(*corev1.Service); is && selects(s, p) {
			b.config.Changed(types.NamespacedName{Namespace: s.Namespace, Name: s.Name})
		}
	}
}

func selects(s *corev1.Service, p *metav1.PartialObjectMetadata) bool {
	return labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(p.Labels))
}

// Marked are the pods with the annotation for which Kubernetes makes endpoints of a Service, in the order of their names: their names,
// labels and that annotation.
func (b *backends) Marked(s *corev1.Service) []*metav1.PartialObjectMetadata {
	if in, _ := selectionOf(s); len(in) == 0 {
		return nil
	}
	var list []*metav1.PartialObjectMetadata
	pods, _ := b.marked.Shared.GetIndexer().ByIndex(byMark, s.Namespace) // fails without that index only
	for _, o := range pods {
		if p, is := o.(*metav1.PartialObjectMetadata); is && selects(s, p) {
			list = append(list, p)
		}
	}
	return byName(list)
}
