package endpoints

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/weftnet/weft/k8s/networkstatus"
	"github.com/weftnet/weft/pod"
)

func interfaceIs(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations[pod.AnnotationEndpoint] = name }
}

func onlyV6(s *corev1.Service) { s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol} }

// rule is a test case for one pod.
type rule struct {
	name    string
	service *corev1.Service
	pod     *corev1.Pod
	want    []string
	fault   string
}

func (r rule) check(t *testing.T) {
	groups, faults := groupsOf(r.service, []*corev1.Pod{r.pod})
	if got := lines(slicesOf(r.service, groups, nil)); !slices.Equal(got, r.want) {
		t.Errorf("endpoints %q, want %q", got, r.want)
	}
	if got := strings.Join(faults, "; "); !strings.HasPrefix(got, r.fault) || (got != "") != (r.fault != "") {
		t.Errorf("faults %q, want %q", got, r.fault)
	}
}

func TestABackendHasTheAddressesOfItsInterface(t *testing.T) {
	for _, r := range []rule{
		{"the named interface", service("a"), backend("a", 1), []string{
			"IPv4 web=8080/TCP a-1 10.2.0.1 ready=true serving=true terminating=false",
			first,
		}, ""},
		{
			"the main one if it names none", service("a", onlyV6),
			backend("a", 1, func(p *corev1.Pod) { p.Annotations = nil }), []string{
				"IPv6 web=8080/TCP a-1 fd00:1::1 ready=true serving=true terminating=false",
			}, "",
		},
		{"the main one by its name", service("a", onlyV6), backend("a", 1, interfaceIs("eth0")), []string{
			"IPv6 web=8080/TCP a-1 fd00:1::1 ready=true serving=true terminating=false",
		}, ""},
		{"of one family only", service("a"), backend("a", 1, interfaceIs("v4")), []string{
			"IPv4 web=8080/TCP a-1 10.4.0.1 ready=true serving=true terminating=false",
		}, ""},
		{
			"of another family", service("a", onlyV6), backend("a", 1, interfaceIs("v4")), nil,
			"pod a-1: its interface v4 has no address of [IPv6]",
		},
		{
			"without addresses", service("a"), backend("a", 1, interfaceIs("s1")), nil,
			"pod a-1: its interface s1 has no address of [IPv4 IPv6]",
		},
		{"one that is not there", service("a"), backend("a", 1, interfaceIs("t9")), nil,
			"pod a-1: contivpp.io/service-endpoint-if: t9: it has no interface t9"},
		{"one without a network status yet", service("a"), backend("a", 1, notReady, func(p *corev1.Pod) {
			delete(p.Annotations, networkstatus.Annotation)
		}), nil, ""},
		{
			"a ready one without a network status", service("a"),
			backend("a", 1, func(p *corev1.Pod) { delete(p.Annotations, networkstatus.Annotation) }), nil,
			"pod a-1: contivpp.io/service-endpoint-if: t1: no component has written its annotation k8s.v1.cni.cncf.io/network-status",
		},
		{
			"what is no JSON", service("a"),
			backend("a", 1, func(p *corev1.Pod) { p.Annotations[networkstatus.Annotation] = "t1" }), nil,
			"pod a-1: contivpp.io/service-endpoint-if: t1: its annotation k8s.v1.cni.cncf.io/network-status: invalid character",
		},
		{
			"in the node's network it is the author's word", service("a"),
			backend("a", 1, func(p *corev1.Pod) { p.Spec.HostNetwork = true }), nil,
			"pod a-1: contivpp.io/service-endpoint-if: t1: it is in the network of its node",
		},
		{"which the API server would not take", service("a"), backend("a", 1, func(p *corev1.Pod) {
			p.Annotations[networkstatus.Annotation] = `[{"interface": "t1", "ips": ["127.0.0.1", "fe80::1"]}]`
		}), nil, "pod a-1: its interface t1 has no address of [IPv4 IPv6]"},
	} {
		t.Run(r.name, r.check)
	}
}

func TestABackendIsLikeThatOfKubernetes(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	for _, r := range []rule{
		{"not ready", service("a", onlyV6), backend("a", 1, notReady), []string{
			"IPv6 web=8080/TCP a-1 fd00:2::1 ready=false serving=false terminating=false",
		}, ""},
		{
			"not ready, but published",
			service("a", onlyV6, func(s *corev1.Service) { s.Spec.PublishNotReadyAddresses = true }),
			backend("a", 1, notReady), []string{
				"IPv6 web=8080/TCP a-1 fd00:2::1 ready=true serving=false terminating=false",
			}, "",
		},
		{"leaving", service("a", onlyV6), backend("a", 1, leaving), []string{
			"IPv6 web=8080/TCP a-1 fd00:2::1 ready=false serving=true terminating=true",
		}, ""},
		{"over", service("a"), backend("a", 1, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }), nil, ""},
		{"not wired yet", service("a"), backend("a", 1, func(p *corev1.Pod) { p.Status.PodIPs = nil }), nil, ""},
		{
			"at a port by number",
			service("a", onlyV6, func(s *corev1.Service) { s.Spec.Ports[0].TargetPort = intstr.FromInt32(81) }),
			backend("a", 1), []string{
				"IPv6 web=81/TCP a-1 fd00:2::1 ready=true serving=true terminating=false",
			}, "",
		},
		{"at a port of a sidecar", service("a", onlyV6), backend("a", 1, func(p *corev1.Pod) {
			p.Spec.InitContainers = p.Spec.Containers
			p.Spec.Containers = nil
			p.Spec.InitContainers[0].RestartPolicy = &always
		}), []string{first}, ""},
		{
			"at a port of another protocol",
			service("a", onlyV6, func(s *corev1.Service) { s.Spec.Ports[0].Protocol = corev1.ProtocolUDP }),
			backend("a", 1), []string{
				"IPv6  a-1 fd00:2::1 ready=true serving=true terminating=false",
			}, "",
		},
	} {
		t.Run(r.name, r.check)
	}
}

func TestASliceIsLikeThatOfKubernetes(t *testing.T) {
	https := "kubernetes.io/wss"
	s := service("a", onlyV6, func(s *corev1.Service) {
		s.Spec.ClusterIP = corev1.ClusterIPNone
		s.Spec.Ports[0].AppProtocol = &https
		s.Labels[discovery.LabelManagedBy] = "me"
	})
	p := backend("a", 1, func(p *corev1.Pod) {
		p.Spec.Hostname = "first"
		p.Spec.Subdomain = "a"
	})
	groups, _ := groupsOf(s, []*corev1.Pod{p})
	made := slicesOf(s, groups, nil)[0]
	owner := made.OwnerReferences[0]
	e := made.Endpoints[0]
	faults := map[string]bool{
		"name": made.Namespace != "here" || made.Name != "a-weft-ipv6-0",
		"labels": made.Labels[discovery.LabelServiceName] != "a" ||
			made.Labels[discovery.LabelManagedBy] != managedBy || made.Labels["team"] != "blue",
		"headless": !hasLabel(made, corev1.IsHeadlessService),
		"owner": len(made.OwnerReferences) != 1 || owner.Kind != "Service" || owner.UID != s.UID ||
			owner.BlockOwnerDeletion != nil,
		"protocol": *made.Ports[0].AppProtocol != https,
		"node":     *e.NodeName != "n1",
		"hostname": *e.Hostname != "first",
		"target":   e.TargetRef.Kind != "Pod" || e.TargetRef.Namespace != "here" || e.TargetRef.UID != p.UID,
	}
	for what, is := range faults {
		if is {
			t.Errorf("its %s: %+v", what, made)
		}
	}
	s.Spec.ClusterIP = "10.96.0.7"
	if again := slicesOf(s, groups, []*discovery.EndpointSlice{made})[0]; hasLabel(again, corev1.IsHeadlessService) {
		t.Error("it is headless still")
	}
}

func hasLabel(s *discovery.EndpointSlice, label string) bool {
	_, has := s.Labels[label]
	return has
}
