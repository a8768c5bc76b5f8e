package endpoints

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/weftnet/weft/pod"
)

// AnnotationSelector on a Service is a label selector for its backends, pods of its namespace.
const AnnotationSelector = pod.AnnotationPrefix + "endpoint-selector"

// managedBy labels the slices of the controller. It does not change third-party slices.
const managedBy = "weft-controller.contivpp.io"

// most is the maximum number of endpoints of a slice, like in slices of Kubernetes.
const most = 100

func asks(s *corev1.Service) bool {
	_, has := s.Annotations[AnnotationSelector]
	return has
}

// Selector returns the label selector in the annotation of a Service. An error says why the Service gets no endpoints.
func Selector(s *corev1.Service) (string, error) {
	selector, err := labels.Parse(s.Annotations[AnnotationSelector])
	switch {
	case err != nil:
		return "", fmt.Errorf("%s: %w", AnnotationSelector, err)
	case selector.Empty():
		return "", errors.New(AnnotationSelector + ": it is empty: expected labels of pods, such as app=router")
	case len(s.Spec.Selector) > 0:
		return "", errors.New(AnnotationSelector +
			": the Service has spec.selector, for which Kubernetes makes endpoints: remove it")
	case s.Spec.Type == corev1.ServiceTypeExternalName:
		return "", errors.New(AnnotationSelector + ": a Service of type ExternalName has no endpoints")
	}
	return selector.String(), nil
}

// plan is the desired slices of a Service.
type plan struct {
	service *corev1.Service
	have    []*discovery.EndpointSlice
	want    []*discovery.EndpointSlice
}

// slicesOf returns the desired slices of a Service. An endpoint stays in its slice, so that a change of one pod changes
// one slice. A family without endpoints has one empty slice, which shows that the controller manages it.
func slicesOf(s *corev1.Service, groups []group, have []*discovery.EndpointSlice) []*discovery.EndpointSlice {
	p := plan{service: s, have: have}
	var more []group // without a slice yet
	for _, family := range families(s) {
		mine := slices.DeleteFunc(slices.Clone(groups), func(g group) bool { return g.family != family })
		if len(mine) == 0 {
			mine = []group{{family: family}}
		}
		for _, g := range mine {
			more = append(more, p.keep(g)...)
		}
	}
	for _, g := range more {
		p.put(p.name(g.family), g)
	}
	return byName(p.want)
}

// keep leaves the endpoints of a group in their slices, fills slices with new ones, and returns the rest.
func (p *plan) keep(g group) (rest []group) {
	left := make(map[types.UID]discovery.Endpoint, len(g.endpoints))
	for _, e := range g.endpoints {
		left[e.TargetRef.UID] = e
	}
	var kept []group
	var names []string
	for _, s := range p.have {
		if s.AddressType != g.family || !equality.Semantic.DeepEqual(s.Ports, g.ports) {
			continue
		}
		part := group{family: g.family, ports: g.ports}
		for _, e := range s.Endpoints {
			if now, is := left[uidOf(e)]; is && len(part.endpoints) < most {
				part.endpoints = append(part.endpoints, now)
				delete(left, uidOf(e))
			}
		}
		kept = append(kept, part)
		names = append(names, s.Name)
	}
	waiting := slices.DeleteFunc(slices.Clone(g.endpoints), func(e discovery.Endpoint) bool {
		return !has(left, uidOf(e))
	})
	for i := range kept {
		n := min(most-len(kept[i].endpoints), len(waiting))
		kept[i].endpoints = append(kept[i].endpoints, waiting[:n]...)
		waiting = waiting[n:]
		if len(kept[i].endpoints) > 0 || len(g.endpoints) == 0 && i == 0 {
			p.put(names[i], kept[i])
		}
	}
	for chunk := range slices.Chunk(waiting, most) {
		rest = append(rest, group{g.family, g.ports, chunk})
	}
	if len(g.endpoints) == 0 && len(kept) == 0 {
		rest = append(rest, g)
	}
	return rest
}

func has(m map[types.UID]discovery.Endpoint, uid types.UID) bool {
	_, is := m[uid]
	return is
}

func uidOf(e discovery.Endpoint) types.UID {
	if e.TargetRef == nil {
		return "" // a user set it
	}
	return e.TargetRef.UID
}

// name returns the name of an emptied slice, or a new name.
func (p *plan) name(family discovery.AddressType) string {
	for _, s := range p.have {
		if s.AddressType == family && sliceNamed(p.want, s.Name) == nil {
			return s.Name
		}
	}
	for i := 0; ; i++ {
		name := fmt.Sprintf("%s-weft-%s-%d", p.service.Name, strings.ToLower(string(family)), i)
		if sliceNamed(p.have, name) == nil && sliceNamed(p.want, name) == nil {
			return name
		}
	}
}

// sliceNamed finds a slice by its name, or returns nil.
func sliceNamed(list []*discovery.EndpointSlice, name string) *discovery.EndpointSlice {
	i := slices.IndexFunc(list, func(s *discovery.EndpointSlice) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return list[i]
}

// put adds a slice, with the metadata of the existing one of that name.
func (p *plan) put(name string, g group) {
	s := &discovery.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: p.service.Namespace, Name: name},
		AddressType: g.family,
	}
	if existing := sliceNamed(p.have, name); existing != nil {
		s = existing.DeepCopy()
	}
	s.Labels = labelsOf(p.service)
	s.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "v1", Kind: "Service", Name: p.service.Name, UID: p.service.UID, Controller: new(true),
	}}
	s.Ports = g.ports
	s.Endpoints = g.endpoints
	if s.Endpoints == nil {
		s.Endpoints = []discovery.Endpoint{} // the API server requires a list
	}
	p.want = append(p.want, s)
}

// labelsOf returns the labels of a Service's slices: the labels of the Service, by which proxies select, and the common
// labels of all slices.
func labelsOf(s *corev1.Service) map[string]string {
	list := make(map[string]string)
	maps.Copy(list, s.Labels)
	delete(list, corev1.IsHeadlessService)
	if cmp.Or(s.Spec.ClusterIP, corev1.ClusterIPNone) == corev1.ClusterIPNone {
		list[corev1.IsHeadlessService] = ""
	}
	list[discovery.LabelServiceName] = s.Name
	list[discovery.LabelManagedBy] = managedBy
	return list
}
