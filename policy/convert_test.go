package policy

import (
	"net/netip"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	adminv1 "sigs.k8s.io/network-policy-api/apis/v1alpha1"
)

// decided compiles the rules of the local pod a/p and decides about a connection to port 80 of TCP.
func decided(e *Engine, d Direction, remote string) Action {
	e.Compile()
	lists := e.Lists()[ID{"a", "p"}]["eth0"]
	if lists[d] == nil {
		return Allow
	}
	return lists[d].Decide(address(remote), TCP, 80).Action
}

// Without peers a rule permits any address. But only pods have named ports.
func TestNamedPortOfAnEgressRuleWithoutPeersIsThatOfAnyPod(t *testing.T) {
	e := NewEngine(Config{})
	e.SetPod(podAt("a/p", true, "10.0.0.1"))
	for name, port := range map[string]uint16{"b/web": 80, "b/other": 81} {
		p := podAt(name, false, map[uint16]string{80: "10.0.0.2", 81: "10.0.0.3"}[port])
		p.Ports = []NamedPort{{"http", TCP, port}}
		e.SetPod(p)
	}
	e.SetPolicy(networkPolicy(t, "a/p", `{podSelector: {}, policyTypes: [Egress], egress: [{ports: [{port: http}]}]}`))
	for remote, want := range map[string]Action{"10.0.0.2": Allow, "10.0.0.3": Deny, "192.0.2.1": Deny} {
		if got := decided(e, Egress, remote); got != want {
			t.Errorf("to %s: %s, want %s", remote, got, want)
		}
	}
}

// A policy that may select a pod only by mistake denies it what it denies, and leaves what it allows to other policies.
func TestRulesOfAnUnknownSubject(t *testing.T) {
	to := func(cidr adminv1.CIDR) []adminv1.AdminNetworkPolicyEgressPeer {
		return []adminv1.AdminNetworkPolicyEgressPeer{{Networks: []adminv1.CIDR{cidr}}}
	}
	o := &adminv1.AdminNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	o.Spec.Egress = []adminv1.AdminNetworkPolicyEgressRule{
		{Action: "Allow", To: to("192.0.2.0/28")}, {Action: "Deny", To: to("192.0.2.16/28")}, {
			Action: "Pass",
			To:     to("192.0.2.32/28"),
		},
	}
	p, err := OfAdminNetworkPolicy(o)
	if err == nil {
		t.Fatal("a policy without subject is valid")
	}
	e := NewEngine(Config{})
	e.SetPod(podAt("a/p", true, "10.0.0.1"))
	e.SetPolicy(p)
	check := func(when string, allowed Action) {
		t.Helper()
		for remote, want := range map[string]Action{
			"192.0.2.1":  allowed,
			"192.0.2.17": Deny,
			"192.0.2.33": Deny,
			"192.0.2.49": allowed,
		} {
			if got := decided(e, Egress, remote); got != want {
				t.Errorf("%s: to %s: %s, want %s", when, remote, got, want)
			}
		}
	}
	check("without another policy", Allow)
	e.SetPolicy(networkPolicy(t, "a/p", denyAll))
	check("with a policy that isolates the pod", Deny)
}

// The definitions of AdminNetworkPolicies refuse these.
func TestEmptyListsOfAnAdminNetworkPolicyFailClosed(t *testing.T) {
	anywhere := []adminv1.AdminNetworkPolicyEgressPeer{{Networks: []adminv1.CIDR{"0.0.0.0/0"}}}
	for name, tt := range map[string]struct {
		rule adminv1.AdminNetworkPolicyEgressRule
		want Action
	}{
		"deny without peers":  {adminv1.AdminNetworkPolicyEgressRule{Action: "Deny"}, Deny},
		"pass without peers":  {adminv1.AdminNetworkPolicyEgressRule{Action: "Pass"}, Deny},
		"allow without peers": {adminv1.AdminNetworkPolicyEgressRule{Action: "Allow"}, Deny},
		"allow without a port": {
			adminv1.AdminNetworkPolicyEgressRule{
				Action: "Allow",
				To:     anywhere,
				Ports:  &[]adminv1.AdminNetworkPolicyPort{},
			},
			Deny,
		},
		"allow all ports": {adminv1.AdminNetworkPolicyEgressRule{Action: "Allow", To: anywhere}, Allow},
	} {
		t.Run(name, func(t *testing.T) {
			o := &adminv1.AdminNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
			o.Spec.Subject.Namespaces = &metav1.LabelSelector{}
			o.Spec.Egress = []adminv1.AdminNetworkPolicyEgressRule{tt.rule}
			p, err := OfAdminNetworkPolicy(o)
			if (err == nil) != (tt.want == Allow) {
				t.Errorf("invalid: %v", err)
			}
			e := NewEngine(Config{})
			e.SetPod(podAt("a/p", true, "10.0.0.1"))
			e.SetPolicy(p)
			if tt.rule.Action == "Allow" { // otherwise all is permitted
				e.SetPolicy(networkPolicy(t, "a/p", denyAll))
			}
			if got := decided(e, Egress, "192.0.2.1"); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}

// What a pod's owner says of its addresses counts in the pod's own namespace only.
func TestClaimedAddressesCountInTheirNamespace(t *testing.T) {
	o := &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p", Annotations: map[string]string{AnnotationFor: "red"}},
	}
	o.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{
		{From: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{}}}},
	}
	p, err := OfMultiNetworkPolicy(o, &o.Spec)
	if err != nil {
		t.Fatal(err)
	}
	for namespace, want := range map[string]Action{"a": Allow, "b": Deny} {
		e := NewEngine(Config{})
		e.SetPolicy(p)
		on := func(name string, local bool, claimed ...netip.Addr) {
			own := podAt(name, local, "10.0.0.1")
			own.Interfaces = []Interface{{Name: "eth0", Networks: []string{"red"}, Claimed: claimed}}
			e.SetPod(own)
		}
		on("a/p", true)
		on(namespace+"/peer", false)
		if got := decided(e, Ingress, "10.9.0.5"); got != Deny {
			t.Errorf("namespace %s: an address that no pod claims: %s", namespace, got)
		}
		on(namespace+"/peer", false, address("10.9.0.5"))
		if got := decided(e, Ingress, "10.9.0.5"); got != want {
			t.Errorf("namespace %s: a claimed address: %s, want %s", namespace, got, want)
		}
	}
}
