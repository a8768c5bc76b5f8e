package policies_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	adminv1 "sigs.k8s.io/network-policy-api/apis/v1alpha1"

	"github.com/weftnet/weft/k8s/api/npwg"
	"github.com/weftnet/weft/k8s/client"
	"github.com/weftnet/weft/k8s/k8stest"
	"github.com/weftnet/weft/k8s/policies"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/policy"
)

const (
	networkPolicies  = "networkpolicies.networking.k8s.io"
	multiPolicies    = "multi-networkpolicies.k8s.cni.cncf.io"
	adminPolicies    = "adminnetworkpolicies.policy.networking.k8s.io"
	baselinePolicies = "baselineadminnetworkpolicies.policy.networking.k8s.io"
)

// lab is an API server, and the policies of node n1.
type lab struct {
	*k8stest.Server
	*testing.T
	*policies.Policies
	rules map[string]map[string]policy.Lists // as applied last, by pod
}

func newLab(t *testing.T, set func(*policies.Config)) *lab {
	l := &lab{Server: k8stest.New(t), T: t, rules: make(map[string]map[string]policy.Lists)}
	l.Put("namespaces", &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"team": "red"}},
	})
	l.Put("nodes", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{
		Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}},
	}})
	c, err := client.New(l.Connection())
	if err != nil {
		t.Fatal(err)
	}
	config := policies.Config{Node: "n1", Client: c, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	if set != nil {
		set(&config)
	}
	l.Policies = policies.New(config)
	return l
}

// run watches until the test ends, and waits until all objects are known.
func (l *lab) run() *lab {
	l.Helper()
	l.start()
	l.SetClients(policy.ClientMap{}, nil)
	k8stest.Eventually(l.T, "all objects are known", l.Synced)
	return l
}

func (l *lab) start() {
	l.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- l.Policies.Run(ctx) }()
	l.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			l.Errorf("the watches ended with %v", err)
		}
	})
}

// pod puts a pod of namespace a. Its labels are "app=NAME".
func (l *lab) pod(name, node, ip string, set func(*corev1.Pod)) {
	o := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "a",
			Name:      name,
			UID:       types.UID("uid-" + name),
			Labels:    map[string]string{"app": name},
		},
	}
	o.Spec.NodeName = node
	o.Status.PodIPs = []corev1.PodIP{{IP: ip}}
	if set != nil {
		set(o)
	}
	l.Put("pods", o)
}

// attachment is one of a local pod, with interfaces "name network address".
func attachment(name string, interfaces ...string) *pod.Attachment {
	a := &pod.Attachment{
		Key:     pod.Key{Network: "weft", ContainerID: name, IfName: "eth0"},
		Pod:     pod.ID{Namespace: "a", Name: name, UID: "uid-" + name},
		Created: time.Unix(1, 0),
	}
	for _, text := range interfaces {
		f := strings.Fields(text)
		i := pod.Interface{
			Name:      f[0],
			Type:      pod.TypeTap,
			Network:   f[1],
			Addresses: []netip.Prefix{netip.MustParsePrefix(f[2] + "/32")},
		}
		if i.Network == "default" {
			i.Network = ""
		}
		a.Interfaces = append(a.Interfaces, i)
	}
	return a
}

var nodeLink = []netip.Prefix{netip.MustParsePrefix("10.1.0.1/32")}

func (l *lab) admit(a *pod.Attachment) map[string]policy.Lists {
	rules, isWhole := l.Admit(a, nodeLink)
	if isWhole && !l.Synced() {
		l.Error("rules of all attachments before all objects are known")
	}
	if l.rules[a.Pod.String()] == nil || isWhole {
		l.rules[a.Pod.String()] = rules
	}
	maps.Copy(l.rules[a.Pod.String()], rules)
	return rules
}

// permits reports whether the rules that were applied last permit a connection.
//
//nolint:revive // a connection
func (l *lab) permits(name, nic string, d policy.Direction, remote string, port uint16) bool {
	for name, rules := range l.Changed(nodeLink) {
		l.rules[name] = rules
	}
	list := l.rules["a/"+name][nic][d]
	return list == nil || list.Decide(netip.MustParseAddr(remote), policy.TCP, port).Action == policy.Allow
}

func (l *lab) eventually(what string, is func() bool) {
	l.Helper()
	k8stest.Eventually(l.T, what, is)
}

// onlyFrom allows ingress from pods with app=NAME only.
func onlyFrom(subject, name string) networkingv1.NetworkPolicySpec {
	return networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": subject}},
		Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{
			PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
		}}}},
	}
}

func (l *lab) policy(name string, spec networkingv1.NetworkPolicySpec) {
	l.Put(networkPolicies, &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name},
		Spec:       spec,
	})
}

func TestPodHasItsRulesWhenItIsAdmitted(t *testing.T) {
	l := newLab(t, nil)
	l.policy("p", onlyFrom("db", "web"))
	l.pod("db", "n1", "10.1.0.5", nil)
	l.pod("web", "n2", "10.1.1.5", nil)
	l.run()
	l.admit(attachment("db", "eth0 default 10.1.0.5"))
	for _, tt := range []struct {
		remote string
		want   bool
	}{{"10.1.1.5", true}, {"10.1.1.6", false}, {"10.1.0.1", true}, {"192.0.2.1", true}, {"192.0.2.9", false}} {
		if got := l.permits("db", "eth0", policy.Ingress, tt.remote, 80); got != tt.want {
			t.Errorf("from %s: permitted %t, want %t", tt.remote, got, tt.want)
		}
	}
}

// The event that admits another attachment of a pod may fail after that: the change that it has learned of is not lost.
func TestChangeThatAnAdmissionSeesIsStillReported(t *testing.T) {
	l := newLab(t, nil)
	l.pod("db", "n1", "10.1.0.5", nil)
	l.run()
	a := attachment("db", "eth0 default 10.1.0.5")
	l.admit(a)
	l.policy("p", onlyFrom("db", "web"))
	l.eventually("an admission returns the new rules", func() bool {
		rules, _ := l.Admit(a, nodeLink)
		return rules["eth0"][policy.Ingress] != nil
	})
	if l.permits("db", "eth0", policy.Ingress, "10.1.1.5", 80) {
		t.Error("the change is lost")
	}
}

func TestRulesFollowPodsAndPoliciesOfAllNodes(t *testing.T) {
	l := newLab(t, nil).run()
	l.pod("db", "n1", "10.1.0.5", nil)
	l.admit(attachment("db", "eth0 default 10.1.0.5"))
	from := func(remote string) func() bool {
		return func() bool { return l.permits("db", "eth0", policy.Ingress, remote, 80) }
	}
	l.eventually("a known pod without policies is open", from("10.1.1.5"))
	l.policy("p", onlyFrom("db", "web"))
	l.eventually("the policy isolates it", not(from("10.1.1.5")))
	l.pod("web", "n2", "10.1.1.5", nil)
	l.eventually("a new peer reaches it", from("10.1.1.5"))
	l.pod("web", "n2", "10.1.1.5", func(o *corev1.Pod) { o.Status.Phase = corev1.PodSucceeded })
	l.eventually("the address of a pod that has ended does not", not(from("10.1.1.5")))
	l.pod("web", "n2", "10.1.1.5", func(o *corev1.Pod) { o.Spec.HostNetwork = true })
	l.pod("other", "n2", "10.1.1.7", func(o *corev1.Pod) { o.Labels["app"] = "web" })
	l.eventually("a pod with other labels reaches it", from("10.1.1.7"))
	if from("10.1.1.5")() {
		t.Error("a pod in its node's network is a peer")
	}
	l.Remove(networkPolicies, "a", "p")
	l.eventually("it is open without the policy", from("10.1.1.99"))
}

func TestPodIsClosedUntilItIsKnown(t *testing.T) {
	l := newLab(t, nil)
	closed := func(what string) {
		t.Helper()
		if l.permits("db", "eth0", policy.Ingress, "10.1.1.5", 80) ||
			l.permits("db", "eth0", policy.Egress, "10.1.1.5", 80) {
			t.Errorf("%s: the pod is open", what)
		}
		if !l.permits("db", "eth0", policy.Ingress, "10.1.0.1", 80) {
			t.Errorf("%s: the node does not reach it", what)
		}
	}
	l.admit(attachment("db", "eth0 default 10.1.0.5"))
	closed("before all objects are known")
	l.run()
	closed("without the pod")
	l.pod("db", "n1", "10.1.0.5", func(o *corev1.Pod) { o.UID = "another" })
	l.eventually("the other pod of the name is known", func() bool {
		_, err := l.Explain(policy.End{Address: netip.MustParseAddr("192.0.2.9")},
			policy.End{Address: netip.MustParseAddr("10.1.0.5")}, policy.TCP, 1)
		return err == nil
	})
	closed("with another pod of the name")
	l.pod("db", "n1", "10.1.0.5", nil)
	l.eventually("the pod is open when it is known", func() bool {
		return l.permits("db", "eth0", policy.Ingress, "10.1.1.5", 80)
	})
}

func TestPodThatNoWatchHasShownIsReadOnce(t *testing.T) {
	l := newLab(t, nil).run()
	l.Fail(func(r *http.Request) int { // no watch shows the pod
		if r.URL.Query().Get("watch") != "" {
			return http.StatusServiceUnavailable
		}
		return 0
	})
	l.DropWatches()
	l.pod("db", "n1", "10.1.0.5", nil)
	l.Learn(t.Context(), pod.ID{Namespace: "a", Name: "db", UID: "uid-db"})
	l.admit(attachment("db", "eth0 default 10.1.0.5"))
	if !l.permits("db", "eth0", policy.Ingress, "10.1.1.5", 80) {
		t.Error("the pod is closed although the API server has its labels")
	}
}

// The pod of a failed ADD may be deleted without another event, so what was read of it would stay for the life of the
// agent.
func TestPodOfAFailedADDIsForgotten(t *testing.T) {
	l := newLab(t, nil).run()
	l.Fail(func(r *http.Request) int { // no watch shows the pod
		if r.URL.Query().Get("watch") != "" {
			return http.StatusServiceUnavailable
		}
		return 0
	})
	l.DropWatches()
	l.pod("db", "n1", "10.1.0.5", nil)
	id := pod.ID{Namespace: "a", Name: "db", UID: "uid-db"}
	l.Learn(t.Context(), id)
	l.Forget(id)
	if l.admit(attachment("db", "eth0 default 10.1.0.5")); l.permits("db", "eth0", policy.Ingress, "10.1.1.5", 80) {
		t.Error("the labels of the failed ADD are still known")
	}
	l.Dismiss(attachment("db", "eth0 default 10.1.0.5"))
	l.Learn(t.Context(), id)
	l.admit(attachment("db", "eth0 default 10.1.0.5"))
	l.Forget(id) // another ADD of the pod failed
	if l.admit(attachment("db", "eth0 default 10.1.0.5")); !l.permits("db", "eth0", policy.Ingress, "10.1.1.5", 80) {
		t.Error("the labels of a connected pod are forgotten")
	}
}

func TestLastRulesHoldWithoutTheAPIServer(t *testing.T) {
	l := newLab(t, nil)
	l.policy("p", onlyFrom("db", "web"))
	l.pod("db", "n1", "10.1.0.5", nil)
	l.pod("web", "n2", "10.1.1.5", nil)
	l.run()
	l.admit(attachment("db", "eth0 default 10.1.0.5"))
	l.Disconnect()
	k8stest.Eventually(t, "the API server is gone", func() bool { return l.Failure() != nil })
	if !l.permits("db", "eth0", policy.Ingress, "10.1.1.5", 80) ||
		l.permits("db", "eth0", policy.Ingress, "10.1.1.6", 80) {
		t.Error("the rules differ")
	}
}

func TestMultiNetworkPolicySelectsInterfacesByNetwork(t *testing.T) {
	l := newLab(t, nil)
	for name, annotation := range map[string]string{"by-weft-name": "red", "by-definition": "a/nad"} {
		l.Put(multiPolicies, &npwg.MultiNetworkPolicy{
			ObjectMeta: metav1.ObjectMeta{
				Namespace:   "a",
				Name:        name,
				Annotations: map[string]string{policy.AnnotationFor: annotation},
			},
			Spec: onlyFrom("db", "web"),
		})
	}
	l.pod("db", "n1", "10.1.0.5", nil)
	l.pod("web", "n2", "10.1.1.5", func(o *corev1.Pod) {
		o.Annotations = map[string]string{
			"k8s.v1.cni.cncf.io/network-status": `[{"name":"weft","interface":"eth0","ips":["10.1.1.5"],"default":true},
			{"name":"red","interface":"r1","ips":["10.9.0.5"]},{"name":"a/nad","interface":"n1","ips":["10.8.0.5"]}]`,
		}
	})
	l.SetNetworks(networksOf("n2", map[string]string{"red": "10.9.0.0/24", "net": "10.8.0.0/24"}))
	l.run()
	a := attachment("db", "eth0 default 10.1.0.5", "r1 red 10.9.0.4", "x1 blue 10.7.0.4", "m1 net 10.8.0.4")
	a.Interfaces[3].Definition = "a/nad"
	l.admit(a)
	for _, tt := range []struct {
		nic, remote string
		want        bool
	}{
		{"r1", "10.9.0.5", true}, {"r1", "10.9.0.6", false}, {"r1", "10.1.1.5", false}, {"r1", "10.1.0.1", false},
		{"m1", "10.8.0.5", true}, {"m1", "10.9.0.5", false},
		{"x1", "10.7.0.9", true}, {"eth0", "10.1.1.9", true},
	} {
		if got := l.permits("db", tt.nic, policy.Ingress, tt.remote, 80); got != tt.want {
			t.Errorf("%s from %s: permitted %t, want %t", tt.nic, tt.remote, got, tt.want)
		}
	}
}

func TestAdminNetworkPolicyOverridesNetworkPolicies(t *testing.T) {
	l := newLab(t, nil)
	l.policy("p", onlyFrom("db", "web"))
	l.Put(adminPolicies, &adminv1.AdminNetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "deny"},
		Spec: adminv1.AdminNetworkPolicySpec{
			Subject: adminv1.AdminNetworkPolicySubject{Namespaces: &metav1.LabelSelector{}},
			Ingress: []adminv1.AdminNetworkPolicyIngressRule{{
				Action: adminv1.AdminNetworkPolicyRuleActionDeny,
				From: []adminv1.AdminNetworkPolicyIngressPeer{
					{Namespaces: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "red"}}},
				},
			}},
		},
	})
	l.pod("db", "n1", "10.1.0.5", nil)
	l.pod("web", "n2", "10.1.1.5", nil)
	l.run()
	l.admit(attachment("db", "eth0 default 10.1.0.5"))
	if l.permits("db", "eth0", policy.Ingress, "10.1.1.5", 80) {
		t.Error("the AdminNetworkPolicy does not deny")
	}
}

func TestKindsThatAreNotInstalledAreNoObstacle(t *testing.T) {
	l := newLab(t, nil)
	l.Uninstall(multiPolicies, adminPolicies, "baselineadminnetworkpolicies.policy.networking.k8s.io")
	l.run()
}

func TestProtectedDestinationsOfNodes(t *testing.T) {
	l := newLab(t, func(c *policies.Config) { c.Protected = policies.Protected{Metadata: true, Ports: []uint16{9465}} })
	l.pod("db", "n1", "10.1.0.5", nil)
	l.Put("nodes", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}, Status: corev1.NodeStatus{
		Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.2"}},
	}})
	l.run()
	l.admit(attachment("db", "eth0 default 10.1.0.5"))
	for _, tt := range []struct {
		remote string
		port   uint16
		want   bool
	}{
		{"169.254.169.254", 80, false}, {"fd00:ec2::254", 80, false}, {"192.0.2.1", 9465, false},
		{"192.0.2.2", 9465, false}, {"10.1.0.1", 9465, false},
		{"192.0.2.2", 80, true}, {"192.0.2.3", 9465, true},
	} {
		if got := l.permits("db", "eth0", policy.Egress, tt.remote, tt.port); got != tt.want {
			t.Errorf("to %s port %d: permitted %t, want %t", tt.remote, tt.port, got, tt.want)
		}
	}
}

func TestEgressPolicyPermitsTheServiceOfAnAllowedPod(t *testing.T) {
	l := newLab(t, nil)
	spec := networkingv1.NetworkPolicySpec{
		PolicyTypes: []networkingv1.PolicyType{"Egress"},
		Egress: []networkingv1.NetworkPolicyEgressRule{{
			To: []networkingv1.NetworkPolicyPeer{
				{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
			},
		}},
	}
	l.policy("p", spec)
	l.pod("db", "n1", "10.1.0.5", nil)
	l.pod("web", "n2", "10.1.1.5", nil)
	l.pod("other", "n2", "10.1.1.6", nil)
	for name, ip := range map[string]string{"web": "10.96.0.1", "other": "10.96.0.2"} {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name}}
		s.Spec.ClusterIPs = []string{ip}
		s.Spec.Ports = []corev1.ServicePort{{Name: "http", Port: 80, Protocol: "TCP"}}
		l.Put("services", s)
	}
	l.run()
	l.admit(attachment("db", "eth0 default 10.1.0.5"))
	to := func(ip string) bool { return l.permits("db", "eth0", policy.Egress, ip, 80) }
	if to("10.96.0.1") {
		t.Error("a Service without endpoints is permitted")
	}
	port := int32(8080)
	name := "http"
	endpoints := func(service, ip string) {
		l.Put("endpointslices.discovery.k8s.io", &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "a",
				Name:      service + "-1",
				Labels:    map[string]string{discoveryv1.LabelServiceName: service},
			},
			Ports:     []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{ip}}},
		})
	}
	endpoints("other", "10.1.1.6")
	endpoints("web", "10.1.1.5")
	l.eventually("the Service of the allowed pod is permitted", func() bool { return to("10.96.0.1") })
	if to("10.96.0.2") {
		t.Error("the Service of another pod is permitted")
	}
	endpoints("web", "10.1.1.6")
	l.eventually("it is denied when its endpoint is another pod", func() bool { return !to("10.96.0.1") })
}

// kube-proxy ignores these Services, so nothing replaces their addresses, which their owners choose.
func TestServiceOfAnotherProxyOpensNothing(t *testing.T) {
	l := newLab(t, func(c *policies.Config) { c.TrustExternalIPs = true })
	l.policy("p", networkingv1.NetworkPolicySpec{
		PolicyTypes: []networkingv1.PolicyType{"Egress"},
		Egress: []networkingv1.NetworkPolicyEgressRule{{
			To: []networkingv1.NetworkPolicyPeer{
				{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
			},
		}},
	})
	l.pod("db", "n1", "10.1.0.5", nil)
	l.pod("web", "n2", "10.1.1.5", nil)
	port := int32(80)
	put := func(name, ip string, labels map[string]string) {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, Labels: labels}}
		s.Spec.ExternalIPs = []string{ip}
		s.Spec.Ports = []corev1.ServicePort{{Port: 80, Protocol: "TCP"}}
		l.Put("services", s)
		l.Put("endpointslices.discovery.k8s.io", &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "a",
				Name:      name,
				Labels:    map[string]string{discoveryv1.LabelServiceName: name},
			},
			Ports:     []discoveryv1.EndpointPort{{Port: &port}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.1.1.5"}}},
		})
	}
	put("usual", "198.51.100.1", nil)
	put("foreign", "198.51.100.2", map[string]string{"service.kubernetes.io/service-proxy-name": "none"})
	put("headless", "198.51.100.3", map[string]string{"service.kubernetes.io/headless": ""})
	put("pod", "10.1.1.6", nil)
	l.pod("other", "n2", "10.1.1.6", nil)
	l.run()
	l.admit(attachment("db", "eth0 default 10.1.0.5"))
	to := func(ip string) bool { return l.permits("db", "eth0", policy.Egress, ip, 80) }
	l.eventually("the usual Service is permitted", func() bool { return to("198.51.100.1") })
	for _, ip := range []string{"198.51.100.2", "198.51.100.3", "10.1.1.6"} {
		if to(ip) {
			t.Errorf("%s, which no proxy replaces, is permitted", ip)
		}
	}
	put("usual", "198.51.100.1", map[string]string{"service.kubernetes.io/service-proxy-name": "none"})
	l.eventually("a Service that gets the label is denied", func() bool { return !to("198.51.100.1") })
}

// kube-proxy sends packets for a load balancer of mode Proxy to the load balancer, so its address is not one of the
// Service.
func TestLoadBalancerOfModeProxyOpensNothing(t *testing.T) {
	l := newLab(t, nil)
	l.policy("p", networkingv1.NetworkPolicySpec{
		PolicyTypes: []networkingv1.PolicyType{"Egress"},
		Egress: []networkingv1.NetworkPolicyEgressRule{{
			To: []networkingv1.NetworkPolicyPeer{
				{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
			},
		}},
	})
	l.pod("db", "n1", "10.1.0.5", nil)
	l.pod("web", "n2", "10.1.1.5", nil)
	port := int32(80)
	l.Put("endpointslices.discovery.k8s.io", &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "a",
			Name:      "s",
			Labels:    map[string]string{discoveryv1.LabelServiceName: "s"},
		},
		Ports:     []discoveryv1.EndpointPort{{Port: &port}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.1.1.5"}}},
	})
	balanced := func(second corev1.LoadBalancerIPMode) {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "s"}}
		s.Spec.Ports = []corev1.ServicePort{{Port: 80, Protocol: "TCP"}}
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{
			{IP: "198.51.100.1"}, {IP: "198.51.100.2", IPMode: &second}, {
				IP:     "198.51.100.3",
				IPMode: new(corev1.LoadBalancerIPModeVIP),
			},
		}
		l.Put("services", s)
	}
	balanced(corev1.LoadBalancerIPModeProxy)
	l.run()
	l.admit(attachment("db", "eth0 default 10.1.0.5"))
	to := func(ip string) bool { return l.permits("db", "eth0", policy.Egress, ip, 80) }
	l.eventually("addresses that kube-proxy replaces are permitted", func() bool {
		return to("198.51.100.1") && to("198.51.100.3")
	})
	if to("198.51.100.2") {
		t.Error("the load balancer of mode Proxy is permitted")
	}
	balanced(corev1.LoadBalancerIPModeVIP)
	l.eventually("an address that gets mode VIP is permitted", func() bool { return to("198.51.100.2") })
	balanced(corev1.LoadBalancerIPModeProxy)
	l.eventually("an address that gets mode Proxy is denied", func() bool { return !to("198.51.100.2") })
}

// An agent that restarts knows the client addresses of pods before it replaces the rules of an earlier run: these
// permit connections by Services.
func TestRulesWaitForClientAddresses(t *testing.T) {
	l := newLab(t, nil)
	l.pod("db", "n1", "10.1.0.5", nil)
	l.pod("web", "n2", "10.1.1.5", nil)
	l.policy("p", onlyFrom("db", "web"))
	l.start()
	l.admit(attachment("db", "eth0 default 10.1.0.5"))
	from := func(ip string) func() bool {
		return func() bool { return l.permits("db", "eth0", policy.Ingress, ip, 80) }
	}
	c, err := client.New(l.Connection())
	if err != nil {
		t.Fatal(err)
	}
	later := lab{Server: l.Server, T: t, Policies: policies.New(policies.Config{Node: "n2", Client: c})}
	later.run() // so the first one has seen all objects
	if l.Synced() {
		t.Error("rules are known without the client addresses")
	}
	set := func(texts ...string) {
		var prefixes []netip.Prefix
		for _, text := range texts {
			prefixes = append(prefixes, netip.MustParsePrefix(text))
		}
		ranges, err := policy.NewClientRanges(prefixes)
		if err != nil {
			t.Fatal(err)
		}
		m, why := policy.NewClientMap(ranges, []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}, nil)
		l.SetClients(m, why)
	}
	set("100.64.0.0/10")
	l.eventually("the client address of a permitted pod is permitted", from("100.65.1.5"))
	if !from("10.1.1.5")() || from("100.65.1.6")() {
		t.Error("the address of the pod is denied, or the client address of another one is permitted")
	}
	set("172.16.0.0/16")
	l.eventually("the client address is in another range", from("172.16.1.5"))
	if from("100.65.1.5")() {
		t.Error("an address of the earlier range is permitted")
	}
}
