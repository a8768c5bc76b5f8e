package policies_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/weftnet/weft/k8s/api/npwg"
	"github.com/weftnet/weft/k8s/policies"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/policy"
)

// networksOf returns networks with a block each on one node.
func networksOf(node string, blocks map[string]string) policies.Networks {
	n := policies.Networks{Blocks: make(map[string][]pod.NodePart), CIDRs: make(map[string]bool)}
	for network, block := range blocks {
		part := pod.NodePart{Network: network, Blocks: []netip.Prefix{netip.MustParsePrefix(block)}}
		n.Blocks[node] = append(n.Blocks[node], part)
		if network != policy.DefaultNetwork {
			n.CIDRs[network] = true
		}
	}
	return n
}

// said is an interface in the annotation network-status.
type said struct {
	Name      string   `json:"name"`
	Interface string   `json:"interface"`
	IPs       []string `json:"ips"`
}

// says sets the annotation network-status of a pod.
func says(interfaces ...said) func(*corev1.Pod) {
	raw, _ := json.Marshal(interfaces)
	return func(o *corev1.Pod) {
		o.Annotations = map[string]string{"k8s.v1.cni.cncf.io/network-status": string(raw)}
	}
}

// peersOn puts a MultiNetworkPolicy that allows the pods with a label, of all namespaces, on a network.
func (l *lab) peersOn(network, app string) {
	spec := onlyFrom("db", app)
	spec.Ingress[0].From[0].NamespaceSelector = &metav1.LabelSelector{}
	l.Put(multiPolicies, &npwg.MultiNetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   "a",
			Name:        network,
			Annotations: map[string]string{policy.AnnotationFor: network},
		},
		Spec: spec,
	})
}

// The owner of a pod can write its annotation. Only what other sources confirm counts for other namespaces.
func TestAnnouncedAddressesCountOnlyWhereTheNodeOfThePodHasThem(t *testing.T) {
	inB := func(o *corev1.Pod) { o.Namespace = "b" }
	both := func(f ...func(*corev1.Pod)) func(*corev1.Pod) {
		return func(o *corev1.Pod) {
			for _, set := range f {
				set(o)
			}
		}
	}
	red := says(said{"red", "r1", []string{"10.9.0.5"}})
	for _, tt := range []struct {
		what    string
		set     func(*corev1.Pod)
		network string
		remote  string
		want    bool
	}{
		{"in a block of its node", red, "red", "10.9.0.5", true},
		{"in a block of its node, of another namespace", both(red, inB), "red", "10.9.0.5", true},
		{"with leading zeros", says(said{"red", "r1", []string{"010.9.0.005", "nonsense"}}), "red", "10.9.0.5", true},
		{"in no block", says(said{"red", "r1", []string{"10.9.7.5"}}), "red", "10.9.7.5", false},
		{"in a block of another network", says(said{"red", "r1", []string{"10.8.0.5"}}), "red", "10.8.0.5", false},
		{"not of a node", both(red, func(o *corev1.Pod) { o.Spec.NodeName = "" }), "red", "10.9.0.5", false},
		{"on another node", both(red, func(o *corev1.Pod) { o.Spec.NodeName = "n3" }), "red", "10.9.0.5", false},
		{
			"on a foreign node", both(red, func(o *corev1.Pod) { o.Spec.NodeName = "no-such-node" }), "red", "10.9.0.5",
			false,
		},
		{
			"on this node, whose agent knows better", both(red, func(o *corev1.Pod) { o.Spec.NodeName = "n1" }), "red",
			"10.9.0.5", false,
		},
		{"without a sandbox", both(red, func(o *corev1.Pod) { o.Status.PodIPs = nil }), "red", "10.9.0.5", false},
		{"ended", both(red, func(o *corev1.Pod) { o.Status.Phase = corev1.PodFailed }), "red", "10.9.0.5", false},
		{"by a definition", says(said{"b/nad", "r1", []string{"10.9.0.5"}}), "b/nad", "10.9.0.5", true},
		{
			"by a definition, in no block", both(inB, says(said{"b/nad", "r1", []string{"192.0.2.5"}})), "b/nad",
			"192.0.2.5", false,
		},
		{"on a network where pods choose", says(said{"free", "r1", []string{"192.0.2.5"}}), "free", "192.0.2.5", true},
		{
			"on a network where pods choose, of another namespace",
			both(inB, says(said{"free", "r1", []string{"192.0.2.5"}})), "free", "192.0.2.5", false,
		},
		{"on default, in no block", says(said{"default", "r1", []string{"192.0.2.5"}}), "default", "192.0.2.5", false},
		{
			"on default, in a block of its node", says(said{"default", "r1", []string{"10.1.1.9"}}), "default",
			"10.1.1.9", true,
		},
		{
			"on default, the address of another pod", says(said{"default", "r1", []string{"10.1.1.7"}}), "default",
			"10.1.1.7", false,
		},
		{
			"the address that another pod also says", says(said{"red", "r1", []string{"10.9.0.7"}}), "red", "10.9.0.7",
			false,
		},
	} {
		t.Run(tt.what, func(t *testing.T) {
			l := newLab(t, nil)
			l.Put("namespaces", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "b"}})
			n := networksOf("n2", map[string]string{
				"red":     "10.9.0.0/24",
				"blue":    "10.8.0.0/24",
				"default": "10.1.1.0/24",
			})
			n.CIDRs["free"] = false
			n.Blocks["n1"] = []pod.NodePart{
				{Network: "red", Blocks: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/24")}},
			}
			n.Blocks["n3"] = []pod.NodePart{
				{Network: "red", Blocks: []netip.Prefix{netip.MustParsePrefix("10.9.3.0/24")}},
			}
			l.SetNetworks(n)
			l.peersOn(tt.network, "web")
			l.pod("db", "n1", "10.1.0.5", nil)
			l.web("web", "10.1.1.5", tt.set)
			l.pod("victim", "n2", "10.1.1.7", says(said{"red", "r1", []string{"10.9.0.7"}}))
			l.run()
			a := attachment("db", "eth0 default 10.1.0.5", "r1 "+tt.network+" 10.9.9.9")
			if tt.network == "b/nad" {
				a.Interfaces[1].Definition = "b/nad"
				a.Interfaces[1].Network = "red"
			}
			l.admit(a)
			if got := l.permits("db", "r1", policy.Ingress, tt.remote, 80); got != tt.want {
				t.Errorf("permitted %t, want %t", got, tt.want)
			}
		})
	}
}

// Which addresses count follows the nodes and the other pods, in each order.
func TestAnnouncedAddressesFollowNodesAndOtherPods(t *testing.T) {
	l := newLab(t, nil)
	l.peersOn("red", "web")
	l.pod("db", "n1", "10.1.0.5", nil)
	l.web("web", "10.1.1.5", says(said{"red", "r1", []string{"10.9.0.5"}}))
	l.run()
	l.admit(attachment("db", "eth0 default 10.1.0.5", "r1 red 10.9.9.9"))
	from := l.from("db", "r1", "10.9.0.5")
	if from() {
		t.Error("an address of no known block is permitted")
	}
	l.SetNetworks(networksOf("n2", map[string]string{"red": "10.9.0.0/24"}))
	l.eventually("permitted when the node has the block", from)
	l.pod("thief", "n2", "10.1.1.66", says(said{"red", "r1", []string{"10.9.0.5"}}))
	l.eventually("denied while two pods have the address", not(from))
	l.pod("thief", "n2", "10.1.1.66", nil)
	l.eventually("permitted when the other one does not have it any more", from)
	l.pod("thief", "n2", "10.1.1.66", says(said{"red", "r1", []string{"10.9.0.5"}}))
	l.eventually("denied again", not(from))
	l.Remove("pods", "a", "thief")
	l.eventually("permitted without the other pod", from)
	l.SetNetworks(networksOf("n2", map[string]string{"red": "10.9.1.0/24"}))
	l.eventually("denied when the node does not have the block any more", not(from))
}

// What a user gains who writes the annotation of a pod, until the agent of its node corrects it: free addresses of the
// blocks of this node. An address of another pod is not gained, but it is lost for both.
func TestForgedAddressesAreFreeOnesOfTheNodeOfThePod(t *testing.T) {
	l := newLab(t, nil)
	n := networksOf("n2", map[string]string{"red": "10.9.0.0/24"})
	n.Blocks["n3"] = []pod.NodePart{{Network: "red", Blocks: []netip.Prefix{netip.MustParsePrefix("10.9.3.0/24")}}}
	n.Blocks["n1"] = []pod.NodePart{{Network: "red", Blocks: []netip.Prefix{netip.MustParsePrefix("10.9.9.0/24")}}}
	l.SetNetworks(n)
	l.peersOn("red", "web")
	l.pod("db", "n1", "10.1.0.5", nil)
	l.pod("local", "n1", "10.1.0.6", nil)
	l.pod("victim", "n2", "10.1.1.7", says(said{"red", "r1", []string{"10.9.0.7"}}))
	l.pod("far", "n3", "10.1.3.7", says(said{"red", "r1", []string{"10.9.3.7"}}))
	l.web("friend", "10.1.1.8", says(said{"red", "r1", []string{"10.9.0.8"}}))
	l.run()
	l.admit(attachment("db", "eth0 default 10.1.0.5", "r1 red 10.9.9.9"))
	l.admit(attachment("local", "eth0 default 10.1.0.6", "r1 red 10.9.9.6"))
	l.eventually("a pod is a peer", l.from("db", "r1", "10.9.0.8"))
	honest := said{"red", "r1", []string{"10.9.0.66"}}
	forged := []string{
		"10.9.0.66", "10.9.0.50", "10.9.0.7", "10.9.0.8", "10.9.3.5", "10.9.3.7", "10.9.9.6", "10.9.9.50", "192.0.2.9",
	}
	l.web("forger", "10.1.1.66", says(said{"red", "r1", forged}))
	l.eventually("a free address of the node is gained", l.from("db", "r1", "10.9.0.50"))
	for _, remote := range forged[2:] {
		if l.from("db", "r1", remote)() {
			t.Errorf("%s is permitted", remote)
		}
	}
	l.web("forger", "10.1.1.66", says(honest))
	l.eventually("the correction takes the free address away", not(l.from("db", "r1", "10.9.0.50")))
	for _, remote := range []string{"10.9.0.66", "10.9.0.8"} {
		if !l.from("db", "r1", remote)() {
			t.Errorf("%s is denied after the correction", remote)
		}
	}
}

// A pod cannot inflate the rules of others.
func TestAnnouncedAddressesAreBounded(t *testing.T) {
	l := newLab(t, nil)
	l.SetNetworks(networksOf("n2", map[string]string{"red": "10.9.0.0/16"}))
	l.peersOn("red", "web")
	l.pod("db", "n1", "10.1.0.5", nil)
	var interfaces []said
	for n := range 40 {
		i := said{"red", fmt.Sprintf("r%d", n), nil}
		for k := range 100 {
			i.IPs = append(i.IPs, fmt.Sprintf("10.9.%d.%d", n, 2*k))
		}
		interfaces = append(interfaces, i)
	}
	l.web("web", "10.1.1.5", says(interfaces...))
	l.run()
	rules := l.admit(attachment("db", "eth0 default 10.1.0.5", "r1 red 10.9.255.9"))
	if n := rules["r1"][policy.Ingress].Size(false); n < 64 || n > 70 {
		t.Errorf("%d rules of the dataplane, want one for each of 64 addresses", n)
	}
}

// An entry default of any pod made the address of a load balancer that of a pod: the rules for the load balancer
// vanished.
func TestAnnouncedAddressDoesNotHideALoadBalancer(t *testing.T) {
	l := newLab(t, nil)
	l.SetNetworks(networksOf("n2", map[string]string{"default": "10.1.1.0/24"}))
	spec := onlyTo("db", "web")
	spec.Egress[0].To = append(spec.Egress[0].To, networkingv1.NetworkPolicyPeer{
		IPBlock: &networkingv1.IPBlock{CIDR: "198.51.100.0/24"},
	})
	l.policy("p", spec)
	l.pod("db", "n1", "10.1.0.5", nil)
	l.pod("other", "n2", "10.1.1.66", nil)
	l.service(func(o *corev1.Service) {
		o.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "198.51.100.2"}}
	})
	l.slice("web-1", 8080, endpoint("other", "10.1.1.66", isReady))
	l.pod("forger", "n2", "10.1.1.67", says(said{"default", "net1", []string{"198.51.100.2"}}))
	l.run()
	l.admit(attachment("db", "eth0 default 10.1.0.5"))
	if l.to("198.51.100.2")() {
		t.Error("the load balancer of a denied endpoint is permitted")
	}
}

// A NetworkAttachmentDefinition is another name of a network. An address that another pod has does not count by another
// name.
func TestAddressOfAnotherPodDoesNotCountByAnotherNameOfItsNetwork(t *testing.T) {
	known := map[string]string{"b/nad": "red", "c/nad": "red", "c/further": "default", "c/blue": "blue"}
	for _, tt := range []struct {
		what   string
		policy string
		claims said
		want   bool
	}{
		{"an address that no other pod has", "b/nad", said{"b/nad", "r1", []string{"10.9.0.5"}}, true},
		{"by the name of the network", "red", said{"b/nad", "r1", []string{"10.9.0.5"}}, true},
		{"by another definition of the network", "b/nad", said{"c/nad", "r1", []string{"10.9.0.5"}}, false},
		{"that of a pod that has it by the network", "b/nad", said{"b/nad", "r1", []string{"10.9.0.7"}}, false},
		{"that of a main interface", "b/nad", said{"b/nad", "r1", []string{"10.1.1.7"}}, false},
		{"that of a pod that has it by a definition", "red", said{"red", "r1", []string{"10.9.0.8"}}, false},
		{"that of a pod that has it by another definition", "b/nad", said{"b/nad", "r1", []string{"10.9.0.9"}}, false},
		{
			"on default, that of a pod that has it by a definition", "default",
			said{"default", "r1", []string{"10.1.1.10"}}, false,
		},
		{
			"that of a pod on another network with the same addresses", "red", said{"red", "r1", []string{"10.9.0.11"}},
			true,
		},
	} {
		for _, isKnown := range []bool{true, false} {
			if !isKnown && (tt.want || tt.policy != tt.claims.Name) { // what is not known counts for neither
				continue
			}
			t.Run(fmt.Sprintf("%s, definitions known %t", tt.what, isKnown), func(t *testing.T) {
				l := newLab(t, nil)
				l.Put("namespaces", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "b"}})
				n := networksOf("n2", map[string]string{
					"red":     "10.9.0.0/24",
					"blue":    "10.9.0.0/24",
					"default": "10.1.1.0/24",
				})
				if isKnown {
					n.Definitions = known
				}
				l.SetNetworks(n)
				l.peersOn(tt.policy, "web")
				l.pod("db", "n1", "10.1.0.5", nil)
				l.pod("victim", "n2", "10.1.1.7", says(said{"red", "r1", []string{"10.9.0.7"}}))
				l.pod("other", "n2", "10.1.1.8",
					says(said{"b/nad", "r1", []string{"10.9.0.8"}}, said{"c/nad", "r2", []string{"10.9.0.9"}},
						said{"c/further", "r3", []string{"10.1.1.10"}}, said{"c/blue", "r4", []string{"10.9.0.11"}}))
				l.web("web", "10.1.1.5", says(tt.claims))
				l.run()
				a := attachment("db", "eth0 default 10.1.0.5", "r1 "+tt.policy+" 10.9.9.9")
				if tt.policy == "b/nad" {
					a.Interfaces[1].Definition = "b/nad"
					a.Interfaces[1].Network = "red"
				}
				l.admit(a)
				if got := l.permits("db", "r1", policy.Ingress, tt.claims.IPs[0], 80); got != tt.want {
					t.Errorf("%s is permitted as that of the pod web: %t", tt.claims.IPs[0], got)
				}
			})
		}
	}
}

// A pod's owner cannot take an address from the pods of another node.
func TestAddressOfAPodOfAnotherNodeCountsWhateverOthersSay(t *testing.T) {
	l := newLab(t, nil)
	n := networksOf("n2", map[string]string{"red": "10.9.0.0/24"})
	n.Blocks["n3"] = []pod.NodePart{{Network: "red", Blocks: []netip.Prefix{netip.MustParsePrefix("10.9.3.0/24")}}}
	l.SetNetworks(n)
	l.peersOn("red", "web")
	l.pod("db", "n1", "10.1.0.5", nil)
	l.web("web", "10.1.1.5", says(said{"red", "r1", []string{"10.9.0.5"}}))
	l.pod("thief", "n3", "10.1.3.66",
		says(said{"red", "r1", []string{"10.9.0.5"}}, said{"a/nad", "r2", []string{"10.9.0.5"}}))
	l.run()
	l.admit(attachment("db", "eth0 default 10.1.0.5", "r1 red 10.9.9.9"))
	if from := l.from("db", "r1", "10.9.0.5"); !from() {
		t.Error("denied because a pod of another node says that it has the address")
	}
}

// The network of a definition may become known, or change, while pods run.
func TestAnnouncedAddressesFollowDefinitions(t *testing.T) {
	l := newLab(t, nil)
	l.peersOn("red", "web")
	l.pod("db", "n1", "10.1.0.5", nil)
	l.web("web", "10.1.1.5", says(said{"b/nad", "r1", []string{"10.9.0.5"}}))
	l.run()
	l.admit(attachment("db", "eth0 default 10.1.0.5", "r1 red 10.9.9.9"))
	from := l.from("db", "r1", "10.9.0.5")
	of := func(network string) {
		n := networksOf("n2", map[string]string{"red": "10.9.0.0/24", "blue": "10.8.0.0/24"})
		if network != "" {
			n.Definitions = map[string]string{"b/nad": network}
		}
		l.SetNetworks(n)
	}
	for _, network := range []string{"red", "blue", "red", "", "red"} {
		of(network)
		if network == "red" {
			l.eventually("permitted while the definition is of the network", from)
		} else {
			l.eventually("denied while the definition is of another network", not(from))
		}
	}
}
