package nodeview

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/weftnet/weft/k8s/informer"
	"github.com/weftnet/weft/pod"
)

// namespaces are the namespaces of the cluster.
type namespaces struct {
	watched *informer.Informer[*corev1.Namespace]
}

// noNamespace is the list's only entry if a selector selects no namespace: an empty list means all. It is no valid name
// of a namespace.
const noNamespace = "(none)"

// selectedBy lists the namespaces that a selector selects; nil: all.
func (ns *namespaces) selectedBy(s *metav1.LabelSelector) ([]string, error) {
	if s == nil || len(s.MatchLabels)+len(s.MatchExpressions) == 0 {
		return nil, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return nil, fmt.Errorf("namespaceSelector: %w", err)
	}
	var names []string
	for _, n := range ns.watched.All() {
		if selector.Matches(labels.Set(n.Labels)) {
			names = append(names, n.Name)
		}
	}
	if len(names) == 0 {
		return []string{noNamespace}, nil
	}
	slices.Sort(names)
	return names, nil
}

// addTo adds the pools that annotations of namespaces name.
func (ns *namespaces) addTo(v *View) {
	for _, n := range ns.watched.All() {
		text := n.Annotations[pod.AnnotationPools]
		names := poolNames(text)
		if text != "" && names == nil {
			v.Faults = append(v.Faults, Fault{
				"Namespace", n.Name,
				fmt.Sprintf("annotation %s: expected a JSON list of names of pools, not %q", pod.AnnotationPools, text),
			})
		}
		if names != nil && v.NamespacePools == nil {
			v.NamespacePools = make(map[string][]string)
		}
		if names != nil {
			v.NamespacePools[n.Name] = names
		}
	}
}
