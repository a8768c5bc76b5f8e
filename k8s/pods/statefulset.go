package pods

import (
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/pod"
)

// The kind StatefulSet.
const (
	StatefulSetVersion = "apps/v1"
	StatefulSetKind    = "StatefulSet"
)

// StatefulSet identifies the StatefulSet of a pod.
type StatefulSet struct{ Name, UID string }

// SetOf returns the StatefulSet that controls a pod. The error names the controller of another pod.
func SetOf(p metav1.Object) (StatefulSet, error) {
	owner := metav1.GetControllerOf(p)
	switch {
	case owner == nil:
		return StatefulSet{}, pod.NotOfStatefulSet("no controller")
	case owner.APIVersion != StatefulSetVersion || owner.Kind != StatefulSetKind || !isReplica(p.GetName(), owner.Name):
		return StatefulSet{}, pod.NotOfStatefulSet(owner.Kind + " " + owner.Name)
	}
	return StatefulSet{Name: owner.Name, UID: string(owner.UID)}, nil
}

// isReplica reports whether a pod has a name that a StatefulSet gives to its pods. A user can set owners.
func isReplica(podName, set string) bool {
	text, isOne := strings.CutPrefix(podName, set+"-")
	ordinal, err := strconv.ParseUint(text, 10, 31)
	return isOne && err == nil && strconv.FormatUint(ordinal, 10) == text
}
