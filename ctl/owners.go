package ctl

import (
	"fmt"
	"slices"
	"strings"

	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// interfaceName names an interface of a pod: NAMESPACE/NAME:INTERFACE. The short ID of a container without a pod takes
// the pod's place.
func interfaceName(p *weftv1.Pod, container, iface string) string {
	if p.GetName() == "" {
		return shortID(container) + ":" + iface
	}
	return podName(p) + ":" + iface
}

// ownersText names the first interfaces that an object belongs to, and counts the others; "" if it belongs to no pod.
func ownersText(owners []*operatorv1.ObjectOwner) string {
	const most = 3
	var names []string
	for _, o := range owners[:min(len(owners), most)] {
		names = append(names, interfaceName(o.Pod, o.ContainerId, o.Interface))
	}
	text := strings.Join(names, ", ")
	if more := len(owners) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// owned returns the key of an object with its owners.
func owned(key string, owners []*operatorv1.ObjectOwner) string {
	if text := ownersText(owners); text != "" {
		return key + " of " + text
	}
	return key
}

// isOwnedBy reports whether an interface of the pod is one of the owners.
func isOwnedBy(owners []*operatorv1.ObjectOwner, pod string) bool {
	return slices.ContainsFunc(owners, func(o *operatorv1.ObjectOwner) bool {
		return o.Pod.GetName() != "" && podName(o.Pod) == pod
	})
}
