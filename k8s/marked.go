package k8s

import (
	"errors"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

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
