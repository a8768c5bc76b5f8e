package policies

import (
	"errors"
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/k8s/networkstatus"
)

var errNotSynced = errors.New(
	"the API server has not shown all policies, pods and namespaces yet; the rules of an earlier run hold")

// mirror is kubelet's annotation on the API server's copy of a static pod: the UID that the runtime knows.
const mirror = "kubernetes.io/config.mirror"

// maxUID is the longest UID of a static pod. Kubelet's is a hash of 32 digits, but any author of a pod can write the
// annotation.
const maxUID = 64

// lightenPod keeps what policies depend on: of a pod of several kilobytes a few hundred bytes. Its owner may write
// annotations of 256 KiB.
func lightenPod(o *corev1.Pod) *corev1.Pod {
	light := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion, Labels: o.Labels,
	}}
	kept := make(map[string]string)
	if text := lightenStatus(o.Annotations[networkstatus.Annotation]); text != "" {
		kept[networkstatus.Annotation] = text
	}
	if uid := o.Annotations[mirror]; uid != "" && len(uid) <= maxUID {
		kept[mirror] = uid
	}
	if len(kept) > 0 {
		light.Annotations = kept
	}
	light.Spec.NodeName = o.Spec.NodeName
	light.Spec.HostNetwork = o.Spec.HostNetwork
	light.Status.Phase = o.Status.Phase
	light.Status.PodIPs = o.Status.PodIPs
	ports := make(keptPorts)
	light.Spec.Containers = ports.of(o.Spec.Containers)
	light.Spec.InitContainers = ports.of(o.Spec.InitContainers) // sidecars serve, too, but the others come first
	return light
}

// maxNamedPorts is the number of named ports of a pod that are kept: its owner writes tens of thousands.
const maxNamedPorts = 1024

// maxPortsOfAName is the number of ports of one name that are kept of a pod. Each is a rule of the pods that may
// contact it, so that pods with thousands of them would exceed the limits of other namespaces.
const maxPortsOfAName = 16

// keptPorts counts the named ports that are kept of a pod, by name; the key "" has the sum.
type keptPorts map[string]int

// of keeps the named ports of containers: at most maxNamedPorts of the pod, and maxPortsOfAName of a name.
func (k keptPorts) of(list []corev1.Container) []corev1.Container {
	var named []corev1.ContainerPort
	for i := range list {
		for _, p := range list[i].Ports {
			if p.Name == "" || k[""] == maxNamedPorts || k[p.Name] == maxPortsOfAName {
				continue
			}
			k[""]++
			k[p.Name]++
			named = append(named, corev1.ContainerPort{
				Name:          p.Name,
				Protocol:      p.Protocol,
				ContainerPort: p.ContainerPort,
			})
		}
	}
	if named == nil {
		return nil
	}
	return []corev1.Container{{Ports: named}}
}

func samePod(a, b *corev1.Pod) bool {
	x := *a
	y := *b
	x.ResourceVersion = ""
	y.ResourceVersion = ""
	return reflect.DeepEqual(x, y)
}

func lightMeta(o *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion, Generation: o.Generation,
		CreationTimestamp: o.CreationTimestamp, DeletionTimestamp: o.DeletionTimestamp,
	}
}

func lightenNamespace(o *corev1.Namespace) *corev1.Namespace {
	return &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion, Labels: o.Labels},
	}
}

func lightenNode(o *corev1.Node) *corev1.Node {
	light := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion, Labels: o.Labels},
	}
	light.Status.Addresses = o.Status.Addresses
	return light
}

func sameNode(a, b *corev1.Node) bool {
	return maps.Equal(a.Labels, b.Labels) && slices.Equal(a.Status.Addresses, b.Status.Addresses)
}

func hasEnded(o *corev1.Pod) bool {
	return o.Status.Phase == corev1.PodSucceeded || o.Status.Phase == corev1.PodFailed
}
