package policies_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/weftnet/weft/policy"
)

// A pod may have thousands of init containers that never start, each with a port of the same name. The ports of peers
// are rules of the pods that may contact them: without a limit, pods of one namespace exceed the limit of rules of
// another one.
func TestNamedPortsOfPeersDoNotExceedTheLimitOfOthers(t *testing.T) {
	const portsOfAName = 16 // the most of a pod that count
	l := newLab(t, nil)
	l.Put("namespaces", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "b"}})
	http := intstr.FromString("http")
	l.policy("p", networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}},
		PolicyTypes: []networkingv1.PolicyType{"Egress"},
		Egress:      []networkingv1.NetworkPolicyEgressRule{{Ports: []networkingv1.NetworkPolicyPort{{Port: &http}}}},
	})
	named := func(port int) corev1.Container {
		return corev1.Container{Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: int32(port)}}}
	}
	l.pod("db", "n1", "10.1.0.5", nil)
	l.web("web", "10.1.1.5", func(o *corev1.Pod) { o.Spec.Containers = []corev1.Container{named(80)} })
	l.pod("few", "n2", "10.1.3.5", func(o *corev1.Pod) {
		o.Spec.Containers = nil
		for port := range portsOfAName + 1 {
			o.Spec.Containers = append(o.Spec.Containers, named(100+port))
		}
	})
	for n := range 10 {
		l.pod(fmt.Sprintf("many%d", n), "n2", fmt.Sprintf("10.1.2.%d", n), func(o *corev1.Pod) {
			o.Namespace = "b"
			for port := range 3000 {
				o.Spec.InitContainers = append(o.Spec.InitContainers, named(1+3000*n+port))
			}
			o.Spec.Containers = []corev1.Container{named(40000)}
		})
	}
	l.run()
	l.admit(attachment("db", "eth0 default 10.1.0.5"))
	if !l.permits("db", "eth0", policy.Egress, "10.1.1.5", 80) {
		t.Errorf("disconnected: %v", l.Excess())
	}
	if !l.permits("db", "eth0", policy.Egress, "10.1.2.1", 40000) {
		t.Error("the port of a container does not count, because init containers have the name, too")
	}
	if l.permits("db", "eth0", policy.Egress, "10.1.2.1", 5999) {
		t.Error("all ports of a pod count")
	}
	if !l.permits("db", "eth0", policy.Egress, "10.1.3.5", 100+portsOfAName-1) {
		t.Errorf("the first %d ports of a name do not count", portsOfAName)
	}
	if l.permits("db", "eth0", policy.Egress, "10.1.3.5", 100+portsOfAName) {
		t.Errorf("more than %d ports of a name count", portsOfAName)
	}
}

// Each pod that a policy selects as a peer counts for its limit of addresses. A tenant can have thousands of pods that
// no node runs.
func TestPodsWithoutAddressesDoNotExceedTheLimitOfOthers(t *testing.T) {
	l := newLab(t, nil)
	l.Put("namespaces", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "b"}})
	spec := networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}},
		PolicyTypes: []networkingv1.PolicyType{"Egress"},
	}
	var ports []networkingv1.NetworkPolicyPort
	for n := range 49 {
		name := intstr.FromString(fmt.Sprint("port", n))
		ports = append(ports, networkingv1.NetworkPolicyPort{Port: &name})
	}
	http := intstr.FromInt32(80)
	for range 50 {
		spec.Egress = append(spec.Egress, networkingv1.NetworkPolicyEgressRule{
			To:    []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{}}},
			Ports: append(ports, networkingv1.NetworkPolicyPort{Port: &http}),
		})
	}
	l.policy("p", spec)
	l.pod("db", "n1", "10.1.0.5", nil)
	l.web("web", "10.1.1.5", nil)
	for n := range 200 { // each is read 50 times 50 times
		l.pod(fmt.Sprintf("pending%d", n), "", "", func(o *corev1.Pod) {
			o.Namespace = "b"
			o.Status.PodIPs = nil
		})
	}
	l.pod("running", "n2", "10.1.2.5", func(o *corev1.Pod) { o.Namespace = "b" })
	l.run()
	l.admit(attachment("db", "eth0 default 10.1.0.5"))
	for what, address := range map[string]string{"the own namespace": "10.1.1.5", "their namespace": "10.1.2.5"} {
		if !l.permits("db", "eth0", policy.Egress, address, 80) {
			t.Errorf("disconnected from a pod of %s: %v", what, l.Excess())
		}
	}
}
