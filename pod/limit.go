package pod

import "strings"

// mainInterface is the interface that the annotations of Kubernetes limit.
const mainInterface = "eth0"

// IsLimit reports whether an annotation of Kubernetes limits the bandwidth of a pod's main interface, such as
// kubernetes.io/ingress-bandwidth. Kubernetes leaves these limits to the CNI plugin.
func IsLimit(name string) bool {
	return strings.HasPrefix(name, "kubernetes.io/") && strings.HasSuffix(name, "-bandwidth")
}

// LimitProblems returns an error for each annotation that limits the bandwidth of a main interface of Weft. An ADD
// fails with the first: a pod would run without its limit. The limits of main interfaces of other plugins are theirs.
func LimitProblems(annotations map[string]string) (problems []AnnotationProblem) {
	for _, name := range sortedKeys(annotations) {
		if IsLimit(name) && strings.TrimSpace(annotations[name]) != "" {
			problems = append(problems,
				problemOf(name,
					"Weft does not limit bandwidth: remove the annotation, or chain Weft behind a main CNI plugin that does"))
		}
	}
	return problems
}

// Unlimited returns the error of the first bandwidth limit of the pod, if Weft creates the main interface.
func (e *AddPod) Unlimited() error {
	if e.Mode != "" && e.Mode != ModePrimary || e.Key.IfName != mainInterface {
		return nil
	}
	if problems := LimitProblems(e.Annotations); len(problems) > 0 {
		return e.Failed(problems[0].Err)
	}
	return nil
}
