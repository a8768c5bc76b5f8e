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
	selected, selections := Selections(annotations, namespace)
	names := []string{main}
	for _, r := range requests {
		names = append(names, r.Name)
	}
	for _, s := range selected {
		names = append(names, s.Interface)
	}
	faults := []error{extra, pools, addresses, selections, endpointFault(annotations, names)}
	faults = append(faults, UnknownAnnotations(annotations)...)
	return slices.DeleteFunc(faults, func(err error) bool { return err == nil })
}

// UnknownAnnotations returns an error for each annotation contivpp.io/... that Weft does not know. They do not keep a pod from being added.
func UnknownAnnotations(annotations map[string]string) (faults []error) {
	for _, name := range sortedKeys(annotations) {
		switch {
		case !strings.HasPrefix(name, AnnotationPrefix) || slices.Contains(known, name):
		case strings.HasPrefix(name, AnnotationCustom+"-"): // Contiv-VPP had custom-if-2 and so on
			faults = append(faults, Errorf(CodeInvalidAnnotation, "unknown annotation %s: list all interfaces in %s, separated by commas", name, AnnotationCustom))
		default:
			faults = append(faults, Errorf(CodeInvalidAnnotation, "unknown annotation %s; known are %s", name, strings.Join(known, ", ")))
		}
	}
	return faults
}

// UnservedLimits returns an error for each annotation by which a pod asks for a limit of its bandwidth. They do not keep a pod from being
// added.
func UnservedLimits(annotations map[string]string) (faults []error) {
	for _, name := range bandwidthAnnotations {
		if annotations[name] != "" {
			faults = append(faults, Errorf(CodeInvalidAnnotation, "annotation %s: Weft limits no bandwidth, so the pod runs without this limit", name))
		}
	}
	return faults
}

// endpointFault is that a pod serves by an interface that is none of those it has.
func endpointFault(annotations map[string]string, has []string) error {
	name := annotations[AnnotationEndpoint]
	if name == "" || slices.Contains(has, name) {
		return nil
	}
	return Errorf(CodeInvalidAnnotation, "annotation %s: %q is no interface of %s, and none of %s", AnnotationEndpoint, name, AnnotationCustom, AnnotationNetworks)
}
