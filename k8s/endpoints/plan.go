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

// AnnotationSelector is on a Service that asks: a label selector for the pods of its namespace that are its backends.
const AnnotationSelector = pod.AnnotationPrefix + "endpoint-selector"

// managedBy is who keeps a slice: those of others are left alone.
const managedBy = "weft-controller.contivpp.io"

// most is how many endpoints Kubernetes' own slices have at most, and those here.
const most = 100

func asks(s *corev1.Service) bool {
	_, has := s.Annotations[AnnotationSelector]
	return has
}

// Selector is what a Service that asks wants: labels of pods. An error says why it gets no endpoints.
func Selector(s *corev1.Service) (string, error) {
	selector, err := labels.Parse(s.Annotations[AnnotationSelector])
	switch {
	case err != nil:
		return "", fmt.Errorf("%s: %w", AnnotationSelector, err)
	case selector.Empty():
		return "", errors.New(AnnotationSelector + ": it is empty: expected labels of pods, such as app=router")
	case len(s.Spec.Selector) > 0:
		return "", errors.New(AnnotationSelector + ": the Service has spec.selector, for which Kubernetes makes endpoints: leave that out")
	case s.Spec.Type == corev1.ServiceTypeExternalName:
		return "", errors.New(AnnotationSelector + ": a Service of type ExternalName has no endpoints")
	}
	return selector.String(), nil
}

// plan is how the slices of a Service are to be.
type plan struct {
	service *corev1.Service
	have    []*discovery.EndpointSlice
	want    []*discovery.EndpointSlice
}

// slicesOf gives the slices of a Service with those groups: an endpoint that is in a slice stays in it, so that a change of
// one pod is one of one slice. A family without any has one empty slice, which shows that the controller manages it.
func slicesOf(s *corev1.Service, groups []group, have []*discovery.EndpointSlice) []*discovery.EndpointSlice {
	p := plan{service: s, have: have}
	var more []group // for which there is no slice yet
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
	slices.SortFunc(p.want, func(x, y *discovery.EndpointSlice) int { return strings.Compare(x.Name, y.Name) })
	return p.want
}

// keep puts a group's endpoints where they are, those that are new where there is room, and gives the rest.
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
		kept, names = append(kept, part), append(names, s.Name)
	}
	waiting := slices.DeleteFunc(slices.Clone(g.endpoints), func(e discovery.Endpoint) bool { return !has(left, uidOf(e)) })
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

// name is one for a slice that there is no place for yet: that of a slice which nothing is left in, or a new one.
func (p *plan) name(family discovery.AddressType) string {
	isTaken := func(name string) bool {
		return slices.ContainsFunc(p.want, func(s *discovery.EndpointSlice) bool { return s.Name == name })
	}
	for _, s := range p.have {
		if s.AddressType == family && !isTaken(s.Name) {
			return s.Name
		}
	}
	for i := 0; ; i++ {
		name := fmt.Sprintf("%s-weft-%s-%d", p.service.Name, strings.ToLower(string(family)), i)
		isThere := slices.ContainsFunc(p.have, func(s *discovery.EndpointSlice) bool { return s.Name == name })
		if !isThere && !isTaken(name) {
			return name
		}
	}
}

// put adds a slice: the one of that name if there is one, else a new one.
func (p *plan) put(name string, g group) {
	s := &discovery.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: p.service.Namespace, Name: name}, AddressType: g.family}
	if i := slices.IndexFunc(p.have, func(s *discovery.EndpointSlice) bool { return s.Name == name }); i >= 0 {
		s = p.have[i].DeepCopy()
	}
	s.Labels = labelsOf(p.service)
	controls := true
	s.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "v1", Kind: "Service", Name: p.service.Name, UID: p.service.UID, Controller: &controls,
	}}
	s.Ports, s.Endpoints = g.ports, g.endpoints
	if s.Endpoints == nil {
		s.Endpoints = []discovery.Endpoint{} // the API server wants a list
	}
	p.want = append(p.want, s)
}

// labelsOf are those of a Service's slices: its own, by which proxies choose what is theirs, and those of all slices.
func labelsOf(s *corev1.Service) map[string]string {
	list := maps.Clone(s.Labels)
	if list == nil {
		list = make(map[string]string)
	}
	delete(list, corev1.IsHeadlessService)
	if cmp.Or(s.Spec.ClusterIP, corev1.ClusterIPNone) == corev1.ClusterIPNone {
		list[corev1.IsHeadlessService] = ""
	}
	list[discovery.LabelServiceName], list[discovery.LabelManagedBy] = s.Name, managedBy
	return list
}

// same reports whether a slice needs no write.
func same(x, y *discovery.EndpointSlice) bool { return equality.Semantic.DeepEqual(x, y) }
