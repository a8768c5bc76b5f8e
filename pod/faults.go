package pod

import (
	"slices"
	"strings"
)

// AnnotationFaults are what is wrong with a pod's annotations, in the words in which the pod's ADD says the first of them,
// and annotations that look like ours and are not.
func AnnotationFaults(annotations map[string]string, namespace, main string) []error {
	requests, extra := InterfaceRequests(annotations, main)
	_, pools := PoolsAsked(annotations)
	_, addresses := AddressesAsked(annotations)
	_, selections := Selections(annotations, namespace)
	faults := []error{extra, pools, addresses, selections, endpointFault(annotations, requests, main)}
	for _, name := range sortedKeys(annotations) {
		if strings.HasPrefix(name, AnnotationPrefix) && !slices.Contains(known, name) {
			faults = append(faults, Errorf(CodeInvalidAnnotation, "annotation %s: Weft has none of that name; it has %s", name, strings.Join(known, ", ")))
		}
	}
	return slices.DeleteFunc(faults, func(err error) bool { return err == nil })
}

// endpointFault is that a pod serves by an interface that it does not ask for.
func endpointFault(annotations map[string]string, requests []InterfaceRequest, main string) error {
	name := annotations[AnnotationEndpoint]
	if name == "" || name == main || slices.ContainsFunc(requests, func(r InterfaceRequest) bool { return r.Name == name }) {
		return nil
	}
	return Errorf(CodeInvalidAnnotation, "annotation %s: %q is no interface of %s", AnnotationEndpoint, name, AnnotationCustom)
}
