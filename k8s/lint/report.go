package lint

import (
	"cmp"
	"errors"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/weftnet/weft/pod"
)

// Fault is one thing that is wrong.
type Fault struct {
	File   string `json:"file"`
	Object string `json:"object"` // kind and name
	Reason string `json:"reason"`
}

// String is the fault as a line.
func (f Fault) String() string { return fmt.Sprintf("%s: %s: %s", f.File, f.Object, f.Reason) }

// Report is what is wrong in the files that it has read.
type Report struct {
	Pods   int     `json:"pods"` // how many pods and templates of pods there were
	Faults []Fault `json:"faults"`
}

// lookAhead is how much of a document is looked at to see whether it is JSON.
const lookAhead = 4096

// Read reads the objects of a file of YAML documents, or of JSON. An error says that it has none.
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

// object looks at an object, or at each of a list.
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
	say := func(err error) {
		r.Faults = append(r.Faults, Fault{File: file, Object: fmt.Sprintf("%s %s", u.GetKind(), name), Reason: err.Error()})
	}
	if u.GetKind() == "Namespace" {
		if _, err := pod.PoolsAsked(u.GetAnnotations()); err != nil {
			say(err)
		}
		return
	}
	if u.GetKind() == "Service" {
		for _, err := range serviceFaults(u) {
			say(err)
		}
		return
	}
	if p, ok := podOf(o); ok {
		r.Pods++
		for _, err := range p.faults(cmp.Or(u.GetNamespace(), metav1.NamespaceDefault)) {
			say(err)
		}
	}
}
