package agent

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/weftnet/weft/k8s/k8stest"
	"github.com/weftnet/weft/test/must"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/ping"
)

// policedLab has pods of namespace lab with a label app.
type policedLab struct {
	*lab
	server    *k8stest.Server
	pods      map[string]*node.Pod
	addresses map[string]netip.Addr
}

func newPolicedLab(t *testing.T) *policedLab {
	server := k8stest.New(t)
	return &policedLab{
		clusterLabWith(t, server, node.Options{EnforcePolicies: true}), server, make(map[string]*node.Pod),
		make(map[string]netip.Addr),
	}
}

// add adds a pod and shows its address to the agents.
func (l *policedLab) add(name, app string) {
	l.Helper()
	l.pods[name] = l.pod(name)
	o := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "lab",
			Name:      name,
			UID:       types.UID("uid-" + name),
			Labels:    map[string]string{"app": app},
		},
		Spec: corev1.PodSpec{NodeName: node.Name}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	l.server.Put("pods", o)
	l.addresses[name] = l.lab.addresses(l.cni("ADD", l.pods[name], nil))[0]
	o = o.DeepCopy()
	o.Status.PodIPs = []corev1.PodIP{{IP: l.addresses[name].String()}}
	l.server.Put("pods", o)
}

// deleteAll deletes all pods.
func (l *policedLab) deleteAll() {
	for _, p := range l.pods {
		l.cni("DEL", p, nil)
	}
}

// answers reports whether a pod answers an echo request of another one in time.
func (l *policedLab) answers(from, to string) bool {
	l.Helper()
	p, err := ping.Open(l.pods[from].Netns, l.addresses[to])
	must.Succeed(l.T, err)
	defer p.Close()
	ctx, cancel := context.WithTimeout(l.Context(), time.Second)
	defer cancel()
	_, err = p.Once(ctx, l.addresses[to], 1)
	return err == nil
}

// want fails the test unless pods answer as given.
func (l *policedLab) want(when, from string, answer map[string]bool) {
	l.Helper()
	for to, want := range answer {
		if got := l.answers(from, to); got != want {
			l.Errorf("%s: %s answers %s: %t, want %t", when, to, from, got, want)
		}
	}
}

func (l *policedLab) says(want string, args ...string) func() bool {
	return func() bool {
		text, err := l.Weftctl(l.Context(), args...)
		return err == nil && strings.Contains(strings.Join(strings.Fields(text), " "), want)
	}
}

func (l *policedLab) policy(name string, spec networkingv1.NetworkPolicySpec) {
	l.server.Put("networkpolicies.networking.k8s.io", &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: name},
		Spec:       spec,
	})
}

func podsOf(apps ...string) metav1.LabelSelector {
	return metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: apps},
		},
	}
}

// A policy with more rules than there may be isolates the pods that it selects. It opens none, and other pods and
// policies are as before.
func TestPolicyOverALimitHarmsNobodyElse(t *testing.T) {
	l := newPolicedLab(t)
	l.add("open", "big")     // no policy yet
	l.add("shut", "bigshut") // isolated already
	l.add("other", "other")
	l.add("client", "client")
	isolate := func(name string, apps ...string) {
		l.policy(name, networkingv1.NetworkPolicySpec{
			PodSelector: podsOf(apps...),
			PolicyTypes: []networkingv1.PolicyType{"Ingress"},
		})
	}
	isolate("shut", "bigshut")
	l.eventually("shut is isolated", func() bool { return !l.answers("client", "shut") })
	l.want("before", "client", map[string]bool{"open": true, "other": true})

	big := networkingv1.NetworkPolicyIngressRule{}
	for i := range 300 {
		p := intstr.FromInt32(int32(1000 + 2*i))
		big.Ports = append(big.Ports, networkingv1.NetworkPolicyPort{Port: &p})
		big.From = append(big.From, networkingv1.NetworkPolicyPeer{
			IPBlock: &networkingv1.IPBlock{CIDR: fmt.Sprintf("198.18.%d.%d/32", i/100, 2*(i%100))},
		})
	}
	l.policy("big", networkingv1.NetworkPolicySpec{
		PodSelector: podsOf("big", "bigshut"),
		PolicyTypes: []networkingv1.PolicyType{"Ingress"},
		Ingress:     []networkingv1.NetworkPolicyIngressRule{big},
	})
	l.eventually("status names the policy",
		l.says("policies not ok 1 policies or Services are over a limit of rules: NetworkPolicy lab/big", "status"))
	l.eventually("the policy isolates", func() bool { return !l.answers("client", "open") })
	l.want("with the big policy", "client", map[string]bool{"open": false, "shut": false, "other": true})
	if !l.says("NetworkPolicy lab/big: it isolates pods, but its rules allow nothing, because it needs 90000 rules",
		"policy", "lab/open")() {
		text, _ := l.Weftctl(t.Context(), "policy", "lab/open")
		t.Errorf("weftctl policy does not name the policy:\n%s", text)
	}
	isolate("later", "other")
	l.eventually("a later policy is enforced", func() bool { return !l.answers("client", "other") })
	l.add("late", "big")
	l.want("after the ADD of a selected pod", "client", map[string]bool{"late": false, "open": false, "shut": false})

	l.restartAfter(func(string) error { return nil })
	l.eventually("status names the policy after a restart", l.says("NetworkPolicy lab/big", "status"))
	l.want("after a restart", "client", map[string]bool{"late": false, "open": false, "shut": false, "other": false})

	l.server.Remove("networkpolicies.networking.k8s.io", "lab", "big")
	l.eventually("the pods are open again", func() bool {
		return l.answers("client", "open") && l.answers("client", "late")
	})
	l.want("without the big policy", "client", map[string]bool{"shut": false, "other": false})
	l.eventually("status says that all is enforced", l.says("policies ok enforced", "status"))
	if failed := l.logged("rules of policies are not set completely"); len(failed) > 0 {
		t.Errorf("the dataplane refused rules: %s", failed[0])
	}
	l.deleteAll()
}

// hostileService has many ports at many addresses that its owner chose, and an endpoint that policies deny.
func (l *policedLab) hostileService(ports, addresses int, endpoint netip.Addr) {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "evil", Name: "s"}}
	s.Spec.ClusterIPs = []string{"10.96.66.66"}
	o := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "evil",
			Name:      "s-1",
			Labels:    map[string]string{discoveryv1.LabelServiceName: "s"},
		},
	}
	for n := range ports {
		name := fmt.Sprint("p", n)
		number := int32(1000 + 2*n)
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: name, Protocol: "TCP", Port: number})
		o.Ports = append(o.Ports, discoveryv1.EndpointPort{Name: &name, Port: &number})
	}
	for n := range addresses {
		s.Spec.ExternalIPs = append(s.Spec.ExternalIPs,
			netip.AddrFrom4([4]byte{198, 18, byte(n >> 7), byte(n << 1)}).String())
	}
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{}
	for _, ip := range s.Spec.ExternalIPs { // whichever of these addresses count
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
	}
	o.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{endpoint.String()}}}
	l.server.Put("services", s)
	l.server.Put("endpointslices.discovery.k8s.io", o)
}

// agentMemoryMB is the memory limit of the agent in the chart.
const agentMemoryMB = 512

// A Service of another namespace with any number of ports and addresses disconnects no pod, opens none, and delays no
// ADD.
func TestServiceOfAStrangerDisconnectsNoPod(t *testing.T) {
	l := newPolicedLab(t)
	l.add("web", "web")
	l.add("secret", "secret")
	l.policy("client", networkingv1.NetworkPolicySpec{
		PodSelector: podsOf("client"), PolicyTypes: []networkingv1.PolicyType{"Egress"},
		Egress: []networkingv1.NetworkPolicyEgressRule{
			{
				To: []networkingv1.NetworkPolicyPeer{
					{IPBlock: &networkingv1.IPBlock{CIDR: "0.0.0.0/0", Except: []string{"10.0.0.0/8"}}},
				},
			},
			{
				To: []networkingv1.NetworkPolicyPeer{
					{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
				},
			},
		},
	})
	l.add("client", "client")
	reach := map[string]bool{"web": true, "secret": false}
	l.eventually("the policy is enforced", func() bool {
		return l.answers("client", "web") && !l.answers("client", "secret")
	})
	for _, addresses := range []int{800, 10_000} {
		l.hostileService(100, addresses, l.addresses["secret"])
		what := fmt.Sprintf("with 100 ports at %d addresses", addresses)
		l.eventually("status names the Service "+what,
			l.says("Service evil/s: policed pods cannot contact it", "status"))
		l.want(what, "client", reach)
		name := fmt.Sprint("late", addresses)
		began := time.Now()
		l.add(name, "client")
		t.Logf("%s: ADD of a policed pod takes %s, the agent has %d MB", what,
			time.Since(began).Round(time.Millisecond), l.residentMB())
		l.want(what+", a new pod", name, reach)
		for to, want := range map[string]string{"198.18.0.2": "denied", "198.51.100.1": "allowed"} {
			if !l.says(want+": ", "policy", "lab/"+name, "--to", to, "--port", "1000")() {
				t.Errorf("%s: a connection to %s is not %s", what, to, want)
			}
		}
		if mb := l.residentMB(); mb > agentMemoryMB/2 {
			t.Errorf("%s: the agent has %d MB", what, mb)
		}
	}
	l.server.Remove("services", "evil", "s")
	l.eventually("status says that all is enforced", l.says("policies ok enforced", "status"))
	l.want("without the Service", "client", reach)
	if failed := l.logged("rules of policies are not set completely"); len(failed) > 0 {
		t.Errorf("the dataplane refused rules: %s", failed[0])
	}
	l.deleteAll()
}
