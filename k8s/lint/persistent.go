package lint

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/weftnet/weft/k8s/pods"
	"github.com/weftnet/weft/pod"
)

// validatePersistent reports each interface with the option persistentIPs of a pod that does not keep its name.
func (t *template) validatePersistent(requests []pod.InterfaceRequest) {
	why := t.notOfStatefulSet()
	if why == nil {
		return
	}
	for _, r := range requests {
		if !r.Options.PersistentIPs {
			continue
		}
		at := t.annotation(pod.AnnotationOptions)
		if r.Definition != "" {
			at = t.annotation(r.Annotation())
		}
		t.say(at, pod.Errorf(pod.CodeInvalidAnnotation, "interface %s: %w", r.Name, why))
	}
}

// notOfStatefulSet returns the error of an ADD with the option persistentIPs; nil for the pods of a StatefulSet.
func (t *template) notOfStatefulSet() error {
	switch kind := t.text("kind"); kind {
	case pods.StatefulSetKind:
		return nil
	case "Pod":
		u := unstructured.Unstructured{Object: t.fields}
		own := metav1.ObjectMeta{Name: t.name(), OwnerReferences: u.GetOwnerReferences()}
		_, err := pods.SetOf(&own)
		return err
	default:
		return pod.NotOfStatefulSet("a " + kind)
	}
}
