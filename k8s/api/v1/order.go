package v1

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ByAge sorts objects, the oldest first. If two objects conflict, the older one is used.
func ByAge[T metav1.Object](objects []T) []T {
	slices.SortFunc(objects, func(x, y T) int {
		return cmp.Or(x.GetCreationTimestamp().Compare(y.GetCreationTimestamp().Time),
			cmp.Compare(x.GetNamespace(), y.GetNamespace()), cmp.Compare(x.GetName(), y.GetName()))
	})
	return objects
}

// ByName sorts objects by name.
func ByName[T metav1.Object](objects []T) []T {
	slices.SortFunc(objects, func(x, y T) int { return cmp.Compare(x.GetName(), y.GetName()) })
	return objects
}
