package policies_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/weftnet/weft/k8s/policies"
	"github.com/weftnet/weft/policy"
)

const slicesOfEndpoints = "endpointslices.discovery.k8s.io"

// onlyTo allows egress to pods with app=NAME only, on all ports or on those given.
func onlyTo(subject, name string, ports ...int32) networkingv1.NetworkPolicySpec {
	rule := networkingv1.NetworkPolicyEgressRule{
		To: []networkingv1.NetworkPolicyPeer{
			{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}},
		},
	}
	for _, port := range ports {
		number := intstr.FromInt32(port)
		rule.Ports = append(rule.Ports, networkingv1.NetworkPolicyPort{Port: &number})
	}
	return networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": subject}},
		PolicyTypes: []networkingv1.PolicyType{"Egress"}, Egress: []networkingv1.NetworkPolicyEgressRule{rule},
	}
}

// web puts a pod with app=web, by default of node n2.
func (l *lab) web(name, ip string, set func(*corev1.Pod)) {
	l.pod(name, "n2", ip, func(o *corev1.Pod) {
		o.Labels["app"] = "web"
		o.Status.Phase = corev1.PodRunning
		if set != nil {
			set(o)
		}
	})
}

// service puts the Service a/web with the cluster IP 10.96.0.1.
func (l *lab) service(set func(*corev1.Service)) {
	o := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "web"}}
	o.Spec.ClusterIPs = []string{"10.96.0.1"}
	o.Spec.Ports = []corev1.ServicePort{{Name: "http", Port: 80, Protocol: "TCP"}}
	if set != nil {
		set(o)
	}
	l.Put("services", o)
}

// slice puts an EndpointSlice of the Service a/web.
func (l *lab) slice(name string, port int32, endpoints ...discoveryv1.Endpoint) {
	http := "http"
	l.Put(slicesOfEndpoints, &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "a",
			Name:      name,
			Labels:    map[string]string{discoveryv1.LabelServiceName: "web"},
		},
		Ports: []discoveryv1.EndpointPort{{Name: &http, Port: &port}}, Endpoints: endpoints,
	})
}

// state is the state of an endpoint: ready, serving, terminating.
type state string

const (
	isReady   state = "ready"
	isServing state = "serving and terminating"
	isLeaving state = "terminating"
	isNotYet  state = "not ready"
	isStarted state = "serving, but not ready"
	isEnding  state = "terminating, and nothing is said about serving"
)

// endpoint is one of the pod "uid-NAME".
func endpoint(name, ip string, s state) discoveryv1.Endpoint {
	ready := s == isReady
	serving := s == isReady || s == isServing || s == isStarted
	terminating := s == isServing || s == isLeaving || s == isEnding
	e := discoveryv1.Endpoint{
		Addresses:  []string{ip},
		TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: "a", Name: name, UID: types.UID("uid-" + name)},
		Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &terminating},
	}
	if s == isEnding {
		e.Conditions.Serving = nil
	}
	return e
}

func (l *lab) to(remote string) func() bool {
	return func() bool { return l.permits("db", "eth0", policy.Egress, remote, 80) }
}

// kube-proxy sends connections to endpoints that are ready; without any, to those that end and still serve. Only these
// decide.
func TestEndpointsThatKubeProxyDoesNotUseDoNotDecide(t *testing.T) {
	local := func(o *corev1.Service) { o.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal) }
	localOutside := func(o *corev1.Service) { o.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal }
	const (
		allowed = "10.1.1.5"
		denied  = "10.1.1.66"
	)
	ep := func(ip string, s state) discoveryv1.Endpoint {
		return endpoint(map[string]string{allowed: "web", denied: "other"}[ip], ip, s)
	}
	for _, tt := range []struct {
		what      string
		set       func(*corev1.Service)
		endpoints []discoveryv1.Endpoint
		want      bool
	}{
		{"all ready", nil, []discoveryv1.Endpoint{ep(allowed, isReady), ep(denied, isReady)}, false},
		{"the denied one terminates", nil, []discoveryv1.Endpoint{ep(allowed, isReady), ep(denied, isLeaving)}, true},
		{
			"the denied one terminates and serves", nil,
			[]discoveryv1.Endpoint{ep(allowed, isReady), ep(denied, isServing)}, true,
		},
		{"the denied one is not ready", nil, []discoveryv1.Endpoint{ep(allowed, isReady), ep(denied, isNotYet)}, true},
		{"none is ready", nil, []discoveryv1.Endpoint{ep(allowed, isServing), ep(denied, isServing)}, false},
		{
			"none is ready, the denied one does not serve", nil,
			[]discoveryv1.Endpoint{ep(allowed, isServing), ep(denied, isLeaving)}, true,
		},
		{
			"none is ready, the denied one does not terminate", nil,
			[]discoveryv1.Endpoint{ep(allowed, isServing), ep(denied, isStarted)}, true,
		},
		{
			"none is ready, the allowed one says nothing about serving", nil,
			[]discoveryv1.Endpoint{ep(allowed, isEnding), ep(denied, isLeaving)}, true,
		},
		{
			"none is ready, the denied one says nothing about serving", nil,
			[]discoveryv1.Endpoint{ep(allowed, isServing), ep(denied, isEnding)}, false,
		},
		{"none is usable", nil, []discoveryv1.Endpoint{ep(allowed, isLeaving), ep(allowed, isNotYet)}, false},
		{"nodes choose their own", local, []discoveryv1.Endpoint{ep(allowed, isReady), ep(denied, isServing)}, false},
		{
			"nodes choose their own from outside", localOutside,
			[]discoveryv1.Endpoint{ep(allowed, isReady), ep(denied, isServing)}, false,
		},
		{
			"nodes choose their own, not this one", local,
			[]discoveryv1.Endpoint{ep(allowed, isReady), ep(denied, isLeaving)}, true,
		},
		{"without conditions", nil, []discoveryv1.Endpoint{ep(allowed, isReady), {Addresses: []string{denied}}}, false},
		{"without conditions and allowed", nil, []discoveryv1.Endpoint{{Addresses: []string{allowed}}}, true},
	} {
		t.Run(tt.what, func(t *testing.T) {
			l := newLab(t, nil)
			l.policy("p", onlyTo("db", "web"))
			l.pod("db", "n1", "10.1.0.5", nil)
			l.web("web", allowed, nil)
			l.pod("other", "n2", denied, nil)
			l.service(tt.set)
			l.slice("web-1", 8080, tt.endpoints...)
			l.run()
			l.admit(attachment("db", "eth0 default 10.1.0.5"))
			if got := l.to("10.96.0.1")(); got != tt.want {
				t.Errorf("permitted %t, want %t", got, tt.want)
			}
		})
	}
}

// Another pod of a Service may have the named port at another number.
func TestServiceIsDeniedIfAnEndpointIsAtADeniedPort(t *testing.T) {
	l := newLab(t, nil)
	l.policy("p", onlyTo("db", "web", 80))
	l.pod("db", "n1", "10.1.0.5", nil)
	l.web("web-1", "10.1.1.5", nil)
	l.web("web-2", "10.1.1.6", nil)
	l.service(nil)
	l.slice("web-1", 80, endpoint("web-1", "10.1.1.5", isReady))
	l.run()
	l.admit(attachment("db", "eth0 default 10.1.0.5"))
	l.eventually("permitted with one endpoint", l.to("10.96.0.1"))
	l.slice("web-2", 8080, endpoint("web-2", "10.1.1.6", isReady))
	l.eventually("denied with an endpoint at another port", not(l.to("10.96.0.1")))
}

// The order of events of different watches is not known. In each order the decision after each event is that of the
// rule in endpoints.go, and after all events it is the same.
func TestServiceIsDecidedAlikeInEachOrderOfWatchEvents(t *testing.T) {
	for _, tt := range disagreements() {
		for _, order := range permutations(len(tt.events)) {
			t.Run(fmt.Sprint(tt.what, order), func(t *testing.T) {
				l := newLab(t, nil)
				l.policy("p", onlyTo("db", "web"))
				l.pod("db", "n1", "10.1.0.5", nil)
				l.web("web-1", "10.1.1.5", nil)
				l.web("web-2", reused, nil)
				l.service(nil)
				c := &cluster{at: map[string]string{"10.1.1.5": "web", reused: "web"}}
				c.set(l, endpoint("web-1", "10.1.1.5", isReady), endpoint("web-2", reused, isReady))
				l.run()
				l.admit(attachment("db", "eth0 default 10.1.0.5"))
				l.eventually("the Service is permitted at first", l.to("10.96.0.1"))
				for n, event := range order {
					tt.events[event](l, c)
					want := c.permits()
					l.eventually(fmt.Sprintf("event %d of %v: permitted %t", n, order, want), func() bool {
						_ = l.to("10.96.0.1")()
						return l.seen(c) && l.to("10.96.0.1")() == want
					})
				}
				if got := l.to("10.96.0.1")(); got != tt.want {
					t.Errorf("at last permitted %t, want %t", got, tt.want)
				}
			})
		}
	}
}

// reused is the address of web-2.
const reused = "10.1.1.6"

// disagreement has changes that different watches show.
type disagreement struct {
	what   string
	events []func(*lab, *cluster)
	want   bool // after all of them
}

func disagreements() []disagreement {
	return []disagreement{
		{"a pod is deleted", []func(*lab, *cluster){
			func(l *lab, c *cluster) { l.Remove("pods", "a", "web-2"); delete(c.at, reused); c.gone = true },
			func(l *lab, c *cluster) { c.set(l, endpoint("web-1", "10.1.1.5", isReady)) },
		}, true},
		{"a pod ends, its object stays", []func(*lab, *cluster){
			func(l *lab, c *cluster) {
				l.web("web-2", reused, func(o *corev1.Pod) { o.Status.Phase = corev1.PodFailed })
				delete(c.at, reused)
				c.gone = true
			},
			func(l *lab, c *cluster) {
				c.set(l, endpoint("web-1", "10.1.1.5", isReady), endpoint("web-2", reused, isLeaving))
			},
		}, true},
		{"its reused is that of a denied pod, and the slice stays", []func(*lab, *cluster){
			func(l *lab, c *cluster) {
				l.Remove("pods", "a", "web-2")
				c.gone = true
				c.settle(reused)
			},
			func(l *lab, c *cluster) {
				l.pod("other", "n2", reused, nil)
				c.reused = true
				c.settle(reused)
			},
		}, false},
		{"a denied pod is added", []func(*lab, *cluster){
			func(l *lab, c *cluster) { l.pod("late", "n2", "10.1.1.7", nil); c.at["10.1.1.7"] = "late" },
			func(l *lab, c *cluster) {
				c.set(l, endpoint("web-1", "10.1.1.5", isReady), endpoint("late", "10.1.1.7", isReady))
			},
		}, false},
		{"an allowed pod is added", []func(*lab, *cluster){
			func(l *lab, c *cluster) { l.web("late", "10.1.1.7", nil); c.at["10.1.1.7"] = "web" },
			func(l *lab, c *cluster) {
				c.set(l, endpoint("web-1", "10.1.1.5", isReady), endpoint("late", "10.1.1.7", isReady))
			},
		}, true},
	}
}

// cluster is what the watches have shown, for the naive decision about the Service.
type cluster struct {
	at        map[string]string // app of the known pod with an address
	gone      bool              // web-2 has ended or is deleted
	reused    bool              // its address is that of another pod
	endpoints []discoveryv1.Endpoint
}

func (c *cluster) set(l *lab, endpoints ...discoveryv1.Endpoint) {
	c.endpoints = endpoints
	l.slice("web-1", 8080, endpoints...)
}

// settle sets the pod at the address of web-2. As long as both have it the rules about web-2 decide, too.
func (c *cluster) settle(address string) {
	switch {
	case !c.gone:
		c.at[address] = "web"
	case c.reused:
		c.at[address] = "other"
	default:
		delete(c.at, address)
	}
}

// permits is the rule that endpoints.go states.
func (c *cluster) permits() bool {
	n := 0
	for _, e := range c.endpoints {
		app, isKnown := c.at[e.Addresses[0]]
		switch {
		case !*e.Conditions.Ready, !isKnown && c.gone && e.TargetRef.Name == "web-2":
		case app != "web":
			return false
		default:
			n++
		}
	}
	return n > 0
}

// seen reports whether the policies know the pods of a cluster, and no others.
func (l *lab) seen(c *cluster) bool {
	for _, name := range []string{"web-1", "web-2", "late", "other"} {
		v, err := l.Explain(policy.End{Pod: policy.ID{Namespace: "a", Name: name}},
			policy.End{Address: netip.MustParseAddr("192.0.2.9")}, policy.TCP, 1)
		isKnown := err == nil
		_, want := c.at[v.From.String()]
		if isKnown && !want {
			return false
		}
	}
	return true
}

func permutations(n int) [][]int {
	if n == 0 {
		return [][]int{nil}
	}
	var list [][]int
	for _, p := range permutations(n - 1) {
		for at := range n {
			list = append(list, slices.Insert(slices.Clone(p), at, n-1))
		}
	}
	return list
}

// Any user who may create Services chooses external IPs. They must not make an address denied, or permitted, for other
// pods.
func TestExternalIPsCountOnlyIfTheyAreTrusted(t *testing.T) {
	for _, trust := range []bool{false, true} {
		t.Run(fmt.Sprint(trust), func(t *testing.T) {
			l := newLab(t, func(c *policies.Config) { c.TrustExternalIPs = trust })
			spec := onlyTo("db", "web")
			spec.Egress[0].To = append(spec.Egress[0].To, networkingv1.NetworkPolicyPeer{
				IPBlock: &networkingv1.IPBlock{CIDR: "198.51.100.0/25"},
			})
			l.policy("p", spec)
			l.pod("db", "n1", "10.1.0.5", nil)
			l.web("web-1", "10.1.1.5", nil)
			l.pod("other", "n2", "10.1.1.66", nil)
			l.service(func(o *corev1.Service) {
				o.Spec.ExternalIPs = []string{"198.51.100.1"} // which the policy permits; the endpoint is denied
				o.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "198.51.100.2"}}
			})
			l.slice("web-1", 8080, endpoint("other", "10.1.1.66", isReady))
			l.run()
			l.admit(attachment("db", "eth0 default 10.1.0.5"))
			for ip, want := range map[string]bool{
				"198.51.100.1": !trust,
				"198.51.100.2": false,
				"10.96.0.1":    false,
				"198.51.100.3": true,
			} {
				if got := l.to(ip)(); got != want {
					t.Errorf("%s: permitted %t, want %t", ip, got, want)
				}
			}
			l.slice("web-1", 8080, endpoint("web-1", "10.1.1.5", isReady))
			l.service(func(o *corev1.Service) { // the policy denies both addresses
				o.Spec.ExternalIPs = []string{"198.51.100.200"}
				o.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "198.51.100.201"}}
			})
			l.eventually("this version of the Service is known, and permitted", l.to("198.51.100.201"))
			if got := l.to("198.51.100.200")(); got != trust {
				t.Errorf("an external IP of an allowed pod: permitted %t, want %t", got, trust)
			}
		})
	}
}

// served returns a lab whose Service has the pods web-1 and web-2.
func served(t *testing.T) *lab {
	l := newLab(t, nil)
	l.policy("p", onlyTo("db", "web"))
	l.pod("db", "n1", "10.1.0.5", nil)
	l.web("web-1", "10.1.1.5", nil)
	l.web("web-2", "10.1.1.6", nil)
	l.service(nil)
	l.slice("web-1", 8080, endpoint("web-1", "10.1.1.5", isReady), endpoint("web-2", "10.1.1.6", isReady))
	l.run()
	l.admit(attachment("db", "eth0 default 10.1.0.5"))
	return l
}

// gone returns a lab whose Service had the pods web-1 and web-2, of which the second was deleted. Its EndpointSlice has
// not changed.
func gone(t *testing.T) *lab {
	l := served(t)
	l.Remove("pods", "a", "web-2")
	l.eventually("the address of the pod is denied", not(l.to("10.1.1.6")))
	l.eventually("the Service is permitted without the pod", l.to("10.96.0.1"))
	return l
}

// A pod of a StatefulSet may be recreated while the watch is interrupted, which then shows its successor in its place.
func TestPodThatAnotherOneOfItsNameReplacedIsGone(t *testing.T) {
	l := served(t)
	l.web("web-2", "10.1.1.7", func(o *corev1.Pod) { o.UID = "uid-new" })
	l.eventually("the address of the pod is denied", not(l.to("10.1.1.6")))
	l.eventually("the Service is permitted without the pod", l.to("10.96.0.1"))
}

func TestAddressOfAPodThatIsGoneCountsWhileAnotherPodHasIt(t *testing.T) {
	l := gone(t)
	for range 2 {
		l.pod("other", "n2", "10.1.1.6", nil)
		l.eventually("denied while another pod has the address", not(l.to("10.96.0.1")))
		l.Remove("pods", "a", "other")
		l.eventually("permitted when no pod has it", l.to("10.96.0.1"))
	}
}

// As long as the EndpointSlice has a ready endpoint, kube-proxy does not use those that end, also if the pod of the
// ready one is gone.
func TestEndpointThatEndsIsNotUsedBesideAReadyOneThatIsGone(t *testing.T) {
	l := gone(t)
	l.slice("web-1", 8080, endpoint("web-1", "10.1.1.5", isServing), endpoint("web-2", "10.1.1.6", isReady))
	l.eventually("the rules about the cluster IP itself decide", not(l.to("10.96.0.1")))
	l.slice("web-1", 8080, endpoint("web-1", "10.1.1.5", isServing))
	l.eventually("permitted when only the one that ends is left", l.to("10.96.0.1"))
}

// kube-proxy sends connections to whatever address an EndpointSlice has.
func TestAuthorOfAnEndpointSliceCannotHideAnEndpoint(t *testing.T) {
	l := gone(t)
	hidden := endpoint("web-2", "203.0.113.9", isReady) // never an address of this pod
	l.slice("web-1", 8080, endpoint("web-1", "10.1.1.5", isReady), hidden)
	l.eventually("denied with an address that is not the pod's", not(l.to("10.96.0.1")))
	hidden.TargetRef.Kind = "Node"
	hidden.Addresses[0] = "10.1.1.6"
	l.slice("web-2", 8080, endpoint("web-1", "10.1.1.5", isReady))
	l.slice("web-1", 8080, hidden)
	l.eventually("denied with an endpoint that is not the pod", not(l.to("10.96.0.1")))
}

// A node has its addresses whether or not a pod with hostNetwork is there.
func TestEndpointOfANodeCountsWithoutItsPod(t *testing.T) {
	l := gone(t)
	l.web("host", "192.0.2.7", func(o *corev1.Pod) { o.Spec.HostNetwork = true })
	l.slice("web-1", 8080, endpoint("web-1", "10.1.1.5", isReady), endpoint("host", "192.0.2.7", isReady))
	l.eventually("denied with an endpoint on a node", not(l.to("10.96.0.1")))
	l.web("host", "192.0.2.7", func(o *corev1.Pod) {
		o.Spec.HostNetwork = true
		o.Status.Phase = corev1.PodFailed
	})
	l.Remove("pods", "a", "host")
	l.web("late", "10.1.1.8", nil)
	l.eventually("a later change is seen", l.to("10.1.1.8"))
	if l.to("10.96.0.1")() {
		t.Error("the endpoint on a node does not count without its pod")
	}
	l.slice("web-1", 8080, endpoint("web-1", "10.1.1.5", isReady))
	l.eventually("permitted without the endpoint", l.to("10.96.0.1"))
}

// The watch of its EndpointSlices must not cost each agent of the cluster the product of its ports and endpoints.
func TestServiceWithTooManyEndpointsIsDeniedUntilItHasFewer(t *testing.T) {
	l := newLab(t, nil)
	l.pod("db", "n1", "10.1.0.5", nil)
	l.policy("p", networkingv1.NetworkPolicySpec{
		PolicyTypes: []networkingv1.PolicyType{"Egress"},
		Egress: []networkingv1.NetworkPolicyEgressRule{
			{To: []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: "10.0.0.0/8"}}}},
		},
	})
	l.run()
	l.admit(attachment("db", "eth0 default 10.1.0.5"))
	const ports = 100
	numbers := make([]discoveryv1.EndpointPort, ports)
	l.service(func(o *corev1.Service) {
		o.Spec.Ports = nil
		for n := range ports {
			name := fmt.Sprint("p", n)
			number := int32(1000 + n)
			o.Spec.Ports = append(o.Spec.Ports, corev1.ServicePort{Name: name, Port: number, Protocol: "TCP"})
			numbers[n] = discoveryv1.EndpointPort{Name: &name, Port: &number}
		}
	})
	for _, endpoints := range []int{1, policy.MaxEndpoints/ports + 1, 1} {
		o := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "a",
				Name:      "web-1",
				Labels:    map[string]string{discoveryv1.LabelServiceName: "web"},
			},
			Ports: numbers,
		}
		for n := range endpoints {
			o.Endpoints = append(o.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{fmt.Sprintf("10.9.%d.%d", n/256, n%256)},
			})
		}
		l.Put(slicesOfEndpoints, o)
		l.eventually(fmt.Sprintf("a Service with %d endpoints of each port is decided", endpoints), func() bool {
			return l.permits("db", "eth0", policy.Egress, "10.96.0.1", 1000) == (endpoints == 1)
		})
	}
}
