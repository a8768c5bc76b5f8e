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

// mostNamed is how many pods an event names.
const mostNamed = 3

// tellIgnored says in an event of a Service, one for each interface, that Kubernetes makes its endpoints of eth0, though its pods name
// another interface. S is nil if the Service is gone.
func (k *Keeper) tellIgnored(ctx context.Context, id types.NamespacedName, s *corev1.Service) {
	pods := make(map[string][]string) // by the interface that they name
	if s != nil {
		for _, p := range k.backends.Marked(s) {
			if name := p.Annotations[pod.AnnotationEndpoint]; name != mainInterface {
				pods[name] = append(pods[name], p.Name)
			}
		}
	}
	for _, name := range k.news(id, slices.Sorted(maps.Keys(pods))) {
		text := ignoredText(s, name, pods[name])
		k.log.Warn("endpoints are not on the interface that pods name", "service", id.String(), "interface", name, "err", text)
		k.advise(ctx, s, events.Advice{Reason: reasonIgnored, Cause: name, Message: text})
	}
}

// ignoredText is for the author of a Service.
func ignoredText(s *corev1.Service, name string, pods []string) string {
	list := strings.Join(pods[:min(len(pods), mostNamed)], ", ")
	if more := len(pods) - mostNamed; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("the endpoints of this Service are on %s, not on %s, which %s of %s names: Kubernetes makes the endpoints of a Service with "+
		"spec.selector. If clients are to reach %s, replace the Service by one without spec.selector and with the annotation %s: %q",
		mainInterface, name, pod.AnnotationEndpoint, list, name, AnnotationSelector, labels.SelectorFromSet(s.Spec.Selector).String())
}
