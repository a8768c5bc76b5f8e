package endpoints

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/weftnet/weft/k8s/events"
	"github.com/weftnet/weft/pod"
)

// Reasons of the Events on a Service.
const (
	reasonNoEndpoint = "WeftNoEndpoint"
	reasonIgnored    = "WeftEndpointInterfaceIgnored"
)

// tell writes the new problems of a Service to an Event and the log.
func (k *Keeper) tell(ctx context.Context, s *corev1.Service, faults []string) {
	if news := k.news(idOf(s), faults); len(news) > 0 {
		text := strings.Join(news, "; ")
		k.log.Warn("pods are no endpoints", "service", idOf(s).String(), "err", text)
		k.advise(ctx, s, events.Advice{Reason: reasonNoEndpoint, Cause: text, Message: text})
	}
}

// news returns the current causes that have no Event yet. A cause that ended and began again gets another Event.
func (k *Keeper) news(id types.NamespacedName, causes []string) []string {
	news := slices.DeleteFunc(slices.Clone(causes), func(c string) bool { return slices.Contains(k.told[id], c) })
	if len(causes) == 0 {
		delete(k.told, id)
	} else {
		k.told[id] = causes
	}
	return news
}

// advise writes an Event on a Service. If that fails the log has the message.
func (k *Keeper) advise(ctx context.Context, s *corev1.Service, a events.Advice) {
	a.Object = corev1.ObjectReference{
		APIVersion: "v1",
		Kind:       "Service",
		Namespace:  s.Namespace,
		Name:       s.Name,
		UID:        s.UID,
	}
	if err := events.Advise(ctx, k.client, a); err != nil {
		k.log.Debug("event not written", "service", idOf(s).String(), "err", err)
	}
}

// mostNamed is the number of pods that an Event names.
const mostNamed = 3

// tellIgnored writes an Event on a Service for each interface that its pods name although Kubernetes makes its
// endpoints, on eth0. S is nil if the Service is gone.
func (k *Keeper) tellIgnored(ctx context.Context, id types.NamespacedName, s *corev1.Service) {
	pods := make(map[string][]string) // by the interface that they name
	if s != nil {
		for _, p := range k.backends.Marked(s) {
			if name := p.Annotations[pod.AnnotationEndpoint]; name != MainInterface {
				pods[name] = append(pods[name], p.Name)
			}
		}
	}
	for _, name := range k.news(id, slices.Sorted(maps.Keys(pods))) {
		text := Ignored(s, name, pods[name])
		k.log.Warn("endpoints are not on the interface that pods name", "service", id.String(), "interface", name,
			"err", text)
		k.advise(ctx, s, events.Advice{Reason: reasonIgnored, Cause: name, Message: text})
	}
}

// Ignored is the message to the author of a Service whose pods name an interface on which it has no endpoints.
func Ignored(s *corev1.Service, name string, pods []string) string {
	list := strings.Join(pods[:min(len(pods), mostNamed)], ", ")
	if more := len(pods) - mostNamed; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("the endpoints of this Service are on %s, not on %s, which %s of %s names: Kubernetes makes the endpoints of a Service with "+
		"spec.selector. If clients are to reach %s, replace the Service by one without spec.selector and with the annotation %s: %q",
		MainInterface, name, pod.AnnotationEndpoint, list, name, AnnotationSelector,
		labels.SelectorFromSet(s.Spec.Selector).String())
}

func idOf(s *corev1.Service) types.NamespacedName {
	return types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
}
