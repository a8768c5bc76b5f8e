package lint

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/weftnet/weft/k8s/endpoints"
	"github.com/weftnet/weft/pod"
)

// serviceFaults are what the controller would say of a Service that asks for endpoints, and annotations that look like ours
// and are not.
func serviceFaults(u unstructured.Unstructured) (faults []error) {
	var s corev1.Service
	s.Annotations = u.GetAnnotations()
	s.Spec.Selector, _, _ = unstructured.NestedStringMap(u.Object, "spec", "selector")
	kind, _, _ := unstructured.NestedString(u.Object, "spec", "type")
	s.Spec.Type = corev1.ServiceType(kind)
	for _, name := range slices.Sorted(maps.Keys(s.Annotations)) {
		switch {
		case name == endpoints.AnnotationSelector:
			if _, err := endpoints.Selector(&s); err != nil {
				faults = append(faults, err)
			}
		case strings.HasPrefix(name, pod.AnnotationPrefix):
			faults = append(faults, fmt.Errorf("unknown annotation %s; Services can have %s", name, endpoints.AnnotationSelector))
		}
	}
	return faults
}
