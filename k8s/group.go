package k8s

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/weftnet/weft/pod"
)

// Group is the group that the processes of a pod's container have: the pod's fsGroup, which all of them have beside their
// own, else the container's own. pod.UnknownGroup where neither is said, for an image's USER is in no API, or where the
// pod is not known.
func (c *Cluster) Group(id pod.ID, container string) int {
	p := c.Pod(id)
	if p == nil {
		return pod.UnknownGroup
	}
	own := p.Spec.SecurityContext
	if own != nil && own.FSGroup != nil {
		return int(*own.FSGroup)
	}
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			s := list[i].SecurityContext
			if list[i].Name == container && s != nil && s.RunAsGroup != nil {
				return int(*s.RunAsGroup)
			}
		}
	}
	if own != nil && own.RunAsGroup != nil {
		return int(*own.RunAsGroup)
	}
	return pod.UnknownGroup
}
