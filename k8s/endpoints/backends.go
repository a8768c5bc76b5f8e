package endpoints

import (
	"context"
	"log/slog"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/weftnet/weft/k8s/client"
	"github.com/weftnet/weft/k8s/informer"
)

// backendsConfig configures [backends]. All fields are required.
type backendsConfig struct {
	Client    *client.Client
	ManagedBy string // label of the EndpointSlices
	// reports whether a Service asks for slices; of other Services only the selector is kept
	Asks    func(s *corev1.Service) bool
	Marks   string                             // annotation of pods; of pods without it only the name is kept
	Changed func(service types.NamespacedName) // a Service or its backends may have changed; it must not block
	Log     *slog.Logger
}

// backends watches Services, their EndpointSlices, and the pods that they select: pods are watched for each Service, by
// its selector. It also watches the metadata of all pods, for their annotation.
type backends struct {
	*informer.Group

	config   backendsConfig
	services *informer.Informer[*corev1.Service]
	slices   *informer.Informer[*discoveryv1.EndpointSlice]
	marked   *informer.Informer[*metav1.PartialObjectMetadata]
	pods     map[types.NamespacedName]*selectedPods // by their Service; used by Pods, Forget and Close only
}

// selectedPods is one watch of pods.
type selectedPods struct {
	selector string
	pods     *informer.Informer[*corev1.Pod]
	stop     func()
}

// newBackends makes an overview that knows nothing yet. It sends nothing before Run.
func newBackends(c backendsConfig) *backends {
	b := &backends{config: c, Group: informer.NewGroup(c.Log), pods: make(map[types.NamespacedName]*selectedPods)}
	b.services = informer.Add(b.Group, "services", c.Client.Services(""), informer.Options[*corev1.Service]{
		Lighten: b.lightenService,
		Changed: b.tell,
	})
	b.services.Index(bySelect, selectionOf)
	b.slices = informer.Add(b.Group, "endpoint slices", c.Client.EndpointSlices(""),
		informer.Options[*discoveryv1.EndpointSlice]{Labels: discoveryv1.LabelManagedBy + "=" + c.ManagedBy})
	b.slices.OnObject(func(s *discoveryv1.EndpointSlice) { c.Changed(serviceOf(s)) })
	b.marked = informer.Add(b.Group, "metadata of pods", c.Client.PodMetadata(),
		informer.Options[*metav1.PartialObjectMetadata]{NoWait: true, Lighten: b.lightenPod, Same: sameMark})
	b.marked.Index(byMark, func(p *metav1.PartialObjectMetadata) []string {
		if len(p.Annotations) > 0 {
			return []string{p.Namespace}
		}
		return nil
	})
	b.marked.OnObject(b.tellOfPod)
	return b
}

// lightenService keeps of a Service that does not ask its identity and what it selects.
func (b *backends) lightenService(s *corev1.Service) *corev1.Service {
	if b.config.Asks(s) {
		s.ManagedFields = nil
		return s
	}
	light := &corev1.Service{}
	light.Namespace = s.Namespace
	light.Name = s.Name
	light.UID = s.UID
	light.ResourceVersion = s.ResourceVersion
	light.Spec.Selector = s.Spec.Selector
	light.Spec.Type = s.Spec.Type
	return light
}

func (b *backends) tell(key string) {
	namespace, name, _ := strings.Cut(key, "/")
	b.config.Changed(types.NamespacedName{Namespace: namespace, Name: name})
}

// serviceOf returns the Service of a slice.
func serviceOf(s *discoveryv1.EndpointSlice) types.NamespacedName {
	return types.NamespacedName{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]}
}

// Service returns a Service, or nil. Like all results here it is shared and must not be changed.
func (b *backends) Service(id types.NamespacedName) *corev1.Service {
	s, _ := b.services.One(id.String())
	return s
}

// Slices lists the EndpointSlices of a Service, which may not exist, by name.
func (b *backends) Slices(id types.NamespacedName) []*discoveryv1.EndpointSlice {
	return byName(slices.DeleteFunc(b.slices.All(), func(s *discoveryv1.EndpointSlice) bool {
		return serviceOf(s) != id
	}))
}

// Pods lists the pods of its namespace that a Service selects, by name. It watches them until Forget, or until the
// selector changes. Seen reports whether all have been shown once; Changed is not called for that.
func (b *backends) Pods(ctx context.Context, id types.NamespacedName, selector string) (pods []*corev1.Pod, seen bool) {
	chosen := b.pods[id]
	if chosen == nil || chosen.selector != selector {
		b.Forget(id)
		chosen = b.choose(ctx, id, selector)
		b.pods[id] = chosen
	}
	return byName(chosen.pods.All()), chosen.pods.Synced()
}

func byName[T metav1.Object](list []T) []T {
	slices.SortFunc(list, func(x, y T) int { return strings.Compare(x.GetName(), y.GetName()) })
	return list
}

func (b *backends) choose(ctx context.Context, id types.NamespacedName, selector string) *selectedPods {
	watch := informer.NewGroup(b.config.Log)
	pods := informer.Add(watch, "pods of a service", b.config.Client.Pods(id.Namespace),
		informer.Options[*corev1.Pod]{Labels: selector, Changed: func(string) { b.config.Changed(id) }})
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = watch.Run(ctx) // ends with ctx only
	}()
	return &selectedPods{selector: selector, pods: pods, stop: func() { cancel(); <-ended }}
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

// Indexes, both by namespace.
const (
	byMark   = "marked"    // pods with the annotation
	bySelect = "selecting" // Services that select pods
)

// lightenPod keeps of a pod its name, and if it has the annotation also that and the labels.
func (b *backends) lightenPod(p *metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata {
	light := &metav1.PartialObjectMetadata{}
	light.Namespace = p.Namespace
	light.Name = p.Name
	light.ResourceVersion = p.ResourceVersion
	if mark := p.Annotations[b.config.Marks]; mark != "" {
		light.Labels = p.Labels
		light.Annotations = map[string]string{b.config.Marks: mark}
	}
	return light
}

// sameMark reports whether two versions of a pod differ in no field that is kept but the version.
func sameMark(x, y *metav1.PartialObjectMetadata) bool {
	return labels.Equals(x.Labels, y.Labels) && labels.Equals(x.Annotations, y.Annotations)
}

// selectionOf returns the namespace of a Service for which Kubernetes makes endpoints.
func selectionOf(s *corev1.Service) []string {
	if hasSelection(s) {
		return []string{s.Namespace}
	}
	return nil
}

// tellOfPod tells the Services that select a pod with the annotation.
func (b *backends) tellOfPod(p *metav1.PartialObjectMetadata) {
	if len(p.Annotations) == 0 {
		return
	}
	for _, s := range b.services.ByIndex(bySelect, p.Namespace) {
		if Selects(s, p.Labels) {
			b.config.Changed(types.NamespacedName{Namespace: s.Namespace, Name: s.Name})
		}
	}
}

func hasSelection(s *corev1.Service) bool {
	return len(s.Spec.Selector) > 0 && s.Spec.Type != corev1.ServiceTypeExternalName
}

// Selects reports whether Kubernetes makes endpoints of a Service by a pod of its namespace with these labels.
func Selects(s *corev1.Service, pod map[string]string) bool {
	return hasSelection(s) && labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(pod))
}

// Marked lists the pods with the annotation for which Kubernetes makes endpoints of a Service, by name: their names,
// labels and that annotation.
func (b *backends) Marked(s *corev1.Service) []*metav1.PartialObjectMetadata {
	if selectionOf(s) == nil {
		return nil
	}
	notSelected := func(p *metav1.PartialObjectMetadata) bool { return !Selects(s, p.Labels) }
	return byName(slices.DeleteFunc(b.marked.ByIndex(byMark, s.Namespace), notSelected))
}
