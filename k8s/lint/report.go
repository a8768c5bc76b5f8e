// Package lint checks the annotations of pods, Namespaces and Services in manifests, without a cluster.
package lint

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/weftnet/weft/k8s/endpoints"
	"github.com/weftnet/weft/pod"
)

// Fault is a problem in a file.
type Fault struct {
	File   string `json:"file"`
	Object string `json:"object"` // kind and name
	Reason string `json:"reason"`
}

// String returns one line.
func (f Fault) String() string { return fmt.Sprintf("%s: %s: %s", f.File, f.Object, f.Reason) }

// Report is the problems in the files that it has read.
type Report struct {
	Pods   int     `json:"pods"` // number of pods and templates of pods
	Faults []Fault `json:"faults"`
}

// lookAhead is the number of bytes that tell JSON from YAML.
const lookAhead = 4096

// Read reads the objects of a file of YAML documents or JSON. It fails if the file is neither.
func (r *Report) Read(name string, in io.Reader) error {
	decoder := yaml.NewYAMLOrJSONDecoder(in, lookAhead)
	for i := 1; ; i++ {
		var o map[string]any
		err := decoder.Decode(&o)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: document %d: %w", name, i, err)
		}
		r.object(name, o)
	}
}

// object checks an object, or each object of a list.
func (r *Report) object(file string, o map[string]any) {
	u := unstructured.Unstructured{Object: o}
	items, _, _ := unstructured.NestedSlice(o, "items")
	for _, item := range items {
		if item, ok := item.(map[string]any); ok {
			r.object(file, item)
		}
	}
	name := cmp.Or(u.GetName(), u.GetGenerateName())
	if namespace := u.GetNamespace(); namespace != "" {
		name = namespace + "/" + name
	}
	say := func(faults ...error) {
		for _, err := range faults {
			r.Faults = append(r.Faults, Fault{File: file, Object: fmt.Sprintf("%s %s", u.GetKind(), name), Reason: err.Error()})
		}
	}
	switch p, isPod := podOf(o); {
	case u.GetKind() == "Namespace":
		if _, err := pod.ParsePools(u.GetAnnotations()); err != nil {
			say(err)
		}
	case u.GetKind() == "Service":
		say(serviceFaults(u)...)
	case isPod:
		r.Pods++
		say(p.faults(cmp.Or(u.GetNamespace(), metav1.NamespaceDefault))...)
	}
}

// serviceFaults lists what the controller would report on a Service with endpoints of Weft, and unknown annotations of Weft.
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
