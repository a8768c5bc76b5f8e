package agent

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/k8s/k8stest"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/ping"
)

func TestStatusShowsTheNumberOfUnenforcedNetworkPolicies(t *testing.T) {
	const resource = "networkpolicies.networking.k8s.io"
	l, server := clusterLab(t)
	for i := range 3 {
		server.Put(resource, &networkingv1.NetworkPolicy{
			ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: fmt.Sprintf("p%d", i)},
		})
	}
	shows := func(want string) func() bool {
		return func() bool {
			text, err := l.Weftctl(t.Context(), "status") // an error if the agent is not ready
			return err == nil && strings.Contains(strings.Join(strings.Fields(text), " "), want)
		}
	}
	l.eventually("status shows no policies", shows("policies ok"))
	a := l.pod("a")
	l.put(server, a, nil)
	l.cni("ADD", a, nil)
	restart := func() { l.restartAfter(func(string) error { return nil }) } // it polls at its start
	restart()
	l.eventually("status shows the number",
		shows("policies not ok network policies: 3 are not enforced; set kubernetes.enforcePolicies: true"))
	for i := range 3 {
		server.Remove(resource, "lab", fmt.Sprintf("p%d", i))
	}
	restart()
	l.eventually("status shows no policies", shows("policies ok"))
	l.cni("DEL", a, nil)
}

// The scheduler has the ACLs whether or not the dataplane accepts them.
func TestPoliciesOfTheClusterBecomeACLsOfPods(t *testing.T) {
	server := k8stest.New(t)
	l := clusterLabWith(t, server, node.Options{EnforcePolicies: true})
	says := func(want string, args ...string) func() bool {
		return func() bool {
			text, err := l.Weftctl(t.Context(), args...)
			return err == nil && strings.Contains(strings.Join(strings.Fields(text), " "), want)
		}
	}
	l.eventually("status says that policies are enforced", says("policies ok enforced", "status"))
	a := l.pod("a")
	l.put(server, a, nil)
	address := l.addresses(l.cni("ADD", a, nil))[0].String()
	l.eventually("a pod without policies is open", says("no policy restricts the pod", "policy", "lab/a"))
	if text, err := l.Weftctl(t.Context(), "objects", "vpp.interface-acl"); err == nil &&
		strings.Contains(text, "weft-") {
		t.Errorf("it has ACLs: %s", text)
	}
	server.Put("networkpolicies.networking.k8s.io", &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "deny"},
		Spec:       networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{"Ingress"}},
	})
	l.eventually("the policy isolates it",
		says("eth0 ingress deny 0.0.0.0/0 any - NetworkPolicy lab/deny ingress", "policy", "lab/a"))
	b := l.pod("b")
	l.put(server, b, nil)
	l.cni("ADD", b, nil)
	counted := regexp.MustCompile(`eth0 ingress deny ([0-9]+) [0-9]+ NetworkPolicy lab/deny ingress`)
	l.eventually("denied packets are counted by policy", func() bool {
		if p, err := ping.Open(b.Netns, netip.MustParseAddr(address)); err == nil {
			if _, err := p.Once(t.Context(), netip.MustParseAddr(address), 1); err == nil {
				t.Error("the denied pod gets an answer")
			}
			_ = p.Close()
		}
		text, err := l.Weftctl(t.Context(), "policy", "lab/a")
		return err == nil && counted.MatchString(strings.Join(strings.Fields(text), " "))
	})
	l.cni("DEL", b, nil)
	l.eventually("a connection is denied",
		says("denied: 192.0.2.9 -> "+address, "policy", "lab/a", "--from", "192.0.2.9", "--port", "80"))
	l.eventually("another one is allowed",
		says("allowed: "+address+" -> 192.0.2.9", "policy", "lab/a", "--to", "192.0.2.9", "--port", "80"))
	isDesired := func() bool {
		text, err := l.Weftctl(t.Context(), "objects", "vpp.interface-acl")
		return err == nil && strings.Contains(text, "vpp.interface-acl/weft-")
	}
	l.eventually("its ACLs are desired", isDesired)

	server.Disconnect() // the rules hold while the agent restarts without its API server
	l.restartAfter(func(string) error { return nil })
	l.eventually("the rules are those of the last run",
		says("eth0 ingress deny 0.0.0.0/0 any - NetworkPolicy lab/deny ingress", "policy", "lab/a"))
	l.eventually("status says so", says("policies not ok the API server has not shown all policies", "status"))
	l.eventually("its ACLs are still desired", isDesired)
	server.Reconnect()
	l.eventually("policies are enforced again", says("policies ok enforced", "status"))
	server.Remove("networkpolicies.networking.k8s.io", "lab", "deny")
	l.eventually("the pod is open again", says("no policy restricts the pod", "policy", "lab/a"))
	l.cni("DEL", a, nil)
}
