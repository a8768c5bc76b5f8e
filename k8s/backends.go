package k8s

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
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

// Backends is what watches show of Services, of the EndpointSlices that users made for them, and of pods that they
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

// Service finds a Service; nil: there is none of that name. Like all results here it is shared: do not change it.
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

// Indexes of what a [Backends] keeps, both by namespace.
const (
	byMark   = "marked"    // of pods: those with the annotation
	bySelect = "selecting" // of Services: those that select pods
)

// followMarked watches the metadata of all pods. A Service is told of pods with the annotation only, and not of their status.
func (b *Backends) followMarked() (*watched[*metav1.PartialObjectMetadata], error) {
	pods := b.config.Client.metadata.Resource(corev1.SchemeGroupVersion.WithResource("pods"))
	w, err := follow[*metav1.PartialObjectMetadata]("metadata of pods", pods, narrow{lighten: b.lightenPod}, func(string) {})
	if err != nil {
		return nil, err
	}
	_, err = w.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: b.tellOfPod, DeleteFunc: b.tellOfPod,
		UpdateFunc: func(before, now any) {
			if !sameMark(before, now) {
				b.tellOfPod(before)
				b.tellOfPod(now)
			}
		},
	})
	return w, errors.Join(err,
		w.informer.AddIndexers(cache.Indexers{byMark: b.markOf}), b.services.informer.AddIndexers(cache.Indexers{bySelect: selectionOf}))
}

// lightenPod keeps no more than the name of a pod without the annotation, and else also that and the labels.
func (b *Backends) lightenPod(o any) (any, error) {
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

func (b *Backends) markOf(o any) ([]string, error) {
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
func (b *Backends) tellOfPod(o any) {
	if gone, is := o.(cache.DeletedFinalStateUnknown); is {
		o = gone.Obj
	}
	p, is := o.(*metav1.PartialObjectMetadata)
	if !is || len(p.Annotations) == 0 {
		return
	}
	services, _ := b.services.informer.GetIndexer().ByIndex(bySelect, p.Namespace) // fails without that index only
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
func (b *Backends) Marked(s *corev1.Service) []*metav1.PartialObjectMetadata {
	if in, _ := selectionOf(s); len(in) == 0 {
		return nil
	}
	var list []*metav1.PartialObjectMetadata
	pods, _ := b.marked.informer.GetIndexer().ByIndex(byMark, s.Namespace) // fails without that index only
	for _, o := range pods {
		if p, is := o.(*metav1.PartialObjectMetadata); is && selects(s, p) {
			list = append(list, p)
		}
	}
	return byName(list)
}

// controllerName is the source of the controller's events.
const controllerName = "weft-controller"

// adviceTimeout bounds the request that writes one.
const adviceTimeout = 15 * time.Second

// Advice tells the author of an object that the object does not do what it seems to do.
type Advice struct {
	Object  corev1.ObjectReference
	Reason  string // one word
	Cause   string // identifies what is wrong with the object
	Message string // may change while the cause stays
}

// Advise writes an advice of the controller as an Event of type Warning. The Event's name follows from object, reason and cause, so that a controller that
// starts, and another replica, write none again while the API server has the Event (an hour, by default).
func (c *Client) Advise(ctx context.Context, a Advice) error {
	ctx, cancel := context.WithTimeout(ctx, adviceTimeout)
	defer cancel()
	hash := fnv.New64a()
	for _, part := range []string{string(a.Object.UID), a.Reason, a.Cause} {
		_, _ = fmt.Fprintf(hash, "%q", part) // a hash takes everything
	}
	suffix, now := fmt.Sprintf(".%016x", hash.Sum64()), metav1.Now()
	_, err := c.Events(a.Object.Namespace).Create(ctx, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: a.Object.Namespace, Name: nameWith(a.Object.Name, suffix)},
		InvolvedObject: a.Object, Source: corev1.EventSource{Component: controllerName},
		Type: corev1.EventTypeWarning, Reason: a.Reason, Message: cut(a.Message, longestMessage),
		FirstTimestamp: now, LastTimestamp: now, Count: 1, ReportingController: controllerName,
	}, metav1.CreateOptions{})
	// An object or a namespace that is being deleted needs none.
	if apierrors.IsAlreadyExists(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	return err
}

// nameWith is the name of an Event on an object.
func nameWith(object, suffix string) string {
	return strings.TrimRight(cut(object, longestName-len(suffix)), ".-") + suffix
}
