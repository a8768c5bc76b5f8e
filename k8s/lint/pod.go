package lint

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/weftnet/weft/k8s/endpoints"
	"github.com/weftnet/weft/pod"
)

// template is a pod, or the template of pods.
type template struct {
	annotations map[string]string
	memifs      map[string]int64 // in the limits of the containers, by name
	hostNetwork bool
}

// templates lists where an object has a pod: itself, a Deployment and similar kinds, a CronJob.
var templates = [][]string{nil, {"spec", "template"}, {"spec", "jobTemplate", "spec", "template"}}

// podOf returns the pod or template of an object.
func podOf(o map[string]any) (template, bool) {
	for _, path := range templates {
		p := o
		if path != nil {
			p, _, _ = unstructured.NestedMap(o, path...)
		}
		containers, found, _ := unstructured.NestedSlice(p, "spec", "containers")
		if !found {
			continue
		}
		initial, _, _ := unstructured.NestedSlice(p, "spec", "initContainers")
		annotations, _, _ := unstructured.NestedStringMap(p, "metadata", "annotations")
		host, _, _ := unstructured.NestedBool(p, "spec", "hostNetwork")
		return template{annotations: annotations, memifs: memifsOf(append(initial, containers...)), hostNetwork: host}, true
	}
	return template{}, false
}

// memifsOf reads the limits of containers.
func memifsOf(containers []any) map[string]int64 {
	memifs := make(map[string]int64)
	for _, c := range containers {
		c, ok := c.(map[string]any)
		if !ok {
			continue
		}
		name, _, _ := unstructured.NestedString(c, "name")
		limits, _, _ := unstructured.NestedMap(c, "resources", "limits")
		if quantity, err := resource.ParseQuantity(fmt.Sprint(limits[pod.Resource])); err == nil {
			memifs[name] = quantity.Value()
		}
	}
	return memifs
}

// faults lists what an ADD would refuse, and the controller would report on a backend of Services, as far as that is known without a cluster.
func (p template) faults(namespace string) []error {
	faults := pod.AnnotationErrors(p.annotations, namespace, endpoints.MainInterface)
	if name := p.annotations[pod.AnnotationEndpoint]; p.hostNetwork && name != "" && name != endpoints.MainInterface {
		faults = append(faults, fmt.Errorf("%s: %s: %w", pod.AnnotationEndpoint, name, endpoints.ErrHostNetwork))
	}
	requests, err := pod.InterfaceRequests(p.annotations, endpoints.MainInterface)
	if err != nil {
		return faults
	}
	if err := p.devicesMissing(requests); err != nil {
		faults = append(faults, err)
	}
	return faults
}

// devicesMissing compares the requested memifs with the limits.
func (p template) devicesMissing(requests []pod.InterfaceRequest) error {
	var asked, have int64
	of := make(map[string]int64)
	for _, r := range requests {
		if r.Type != pod.TypeMemif {
			continue
		}
		asked++
		if c := r.Options.Memif.Container; c != "" {
			if of[c]++; of[c] > p.memifs[c] {
				return pod.Errorf(pod.CodeDeviceMissing, "interface %s: container %s has %d of %s in its limits, and annotation %s asks for more",
					r.Name, c, p.memifs[c], pod.Resource, pod.AnnotationOptions)
			}
		}
	}
	for _, n := range p.memifs {
		have += n
	}
	if asked > have {
		return pod.Errorf(pod.CodeDeviceMissing, "the containers have %d of %s in their limits, and annotation %s asks for %d",
			have, pod.Resource, pod.AnnotationCustom, asked)
	}
	return nil
}
