package policies_test

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/k8s/client"
	"github.com/weftnet/weft/k8s/policies"
	"github.com/weftnet/weft/policy"
)

// The watches of pods and namespaces may be complete before those of policies: a pod is closed until all are.
func TestKnownPodIsClosedUntilThePoliciesAreKnown(t *testing.T) {
	for _, resource := range []string{
		"networkpolicies", "multi-networkpolicies", "adminnetworkpolicies", "baselineadminnetworkpolicies", "services",
		"endpointslices", "nodes",
	} {
		t.Run(resource, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, nil)
			l.policy("p", onlyFrom("db", "web"))
			l.pod("db", "n1", "10.1.0.5", nil)
			l.pod("web", "n2", "10.1.1.5", nil)
			l.Fail(func(r *http.Request) int {
				if strings.HasSuffix(r.URL.Path, "/"+resource) {
					return http.StatusServiceUnavailable
				}
				return 0
			})
			l.start()
			l.SetClients(policy.ClientMap{}, nil)
			l.pod("free", "n1", "10.1.0.8", nil)
			free := attachment("free", "eth0 default 10.1.0.8")
			l.eventually("the missing kind is asked for again, so the other kinds are known", func() bool {
				l.Dismiss(free)
				if l.admit(free); l.from("free", "eth0", "10.1.1.9")() {
					t.Fatal("a pod without policies is open before all objects are known")
				}
				return strings.Count(strings.Join(l.Requests(), " "), "/"+resource+"?") > 1
			})
			l.admit(attachment("db", "eth0 default 10.1.0.5"))
			for _, remote := range []string{"10.1.1.5", "10.1.1.9"} {
				if l.permits("db", "eth0", policy.Ingress, remote, 80) ||
					l.permits("db", "eth0", policy.Egress, remote, 80) {
					t.Errorf("%s: permitted before all objects are known", remote)
				}
			}
			if !l.permits("db", "eth0", policy.Ingress, "10.1.0.1", 80) {
				t.Error("the node does not reach the pod")
			}
			if _, err := l.Explain(policy.End{Address: netip.MustParseAddr("10.1.1.5")},
				policy.End{Address: netip.MustParseAddr("10.1.0.5")}, 6, 1); err == nil {
				t.Error("a connection is explained before all objects are known")
			}
			if changed := l.Changed(nodeLink); len(changed) > 0 {
				t.Errorf("rules of %d pods changed before all objects are known", len(changed))
			}
			l.Fail(nil)
			l.eventually("the peer is permitted when all objects are known", l.from("db", "eth0", "10.1.1.5"))
			if l.from("db", "eth0", "10.1.1.9")() {
				t.Error("a stranger is permitted")
			}
			l.eventually("a pod without policies is open when all objects are known",
				l.from("free", "eth0", "10.1.1.9"))
		})
	}
}

// The state file has the rules of the earlier run. The first change after the start replaces them, also by none.
func TestPolicyThatWasDeletedWhileTheAgentWasDownEnds(t *testing.T) {
	l := newLab(t, nil)
	l.policy("p", onlyFrom("db", "web"))
	l.pod("db", "n1", "10.1.0.5", nil)
	l.run()
	l.admit(attachment("db", "eth0 default 10.1.0.5"))
	if l.from("db", "eth0", "10.1.1.9")() {
		t.Fatal("the policy is not in force")
	}
	l.Remove(networkPolicies, "a", "p")
	c, err := client.New(l.Connection())
	if err != nil {
		t.Fatal(err)
	}
	// those of the earlier run
	later := &lab{
		Server:   l.Server,
		T:        t,
		Policies: policies.New(policies.Config{Node: "n1", Client: c}),
		rules:    l.rules,
	}
	later.Admit(attachment("db", "eth0 default 10.1.0.5"), nodeLink)
	later.run()
	select {
	case <-later.NotifyChanged():
	case <-time.After(time.Minute):
		t.Fatal("no change is reported")
	}
	changed := later.Changed(nodeLink)
	rules, isReported := changed["a/db"]
	if !isReported || len(rules) > 0 {
		t.Errorf("reported %t, with rules %v", isReported, rules)
	}
}

// The node's addresses and those of other nodes may change while the agent runs.
func TestAddressesOfNodesMayChange(t *testing.T) {
	l := newLab(t, func(c *policies.Config) { c.Protected = policies.Protected{Metadata: true, Ports: []uint16{9465}} })
	l.policy("p", onlyFrom("db", "web"))
	l.pod("db", "n1", "10.1.0.5", nil)
	node := func(name string, addresses ...string) {
		o := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		for _, a := range addresses {
			o.Status.Addresses = append(o.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
		}
		l.Put("nodes", o)
	}
	l.run()
	l.admit(attachment("db", "eth0 default 10.1.0.5"))
	to := func(remote string) func() bool {
		return func() bool { return l.permits("db", "eth0", policy.Egress, remote, 9465) }
	}
	if !l.from("db", "eth0", "192.0.2.1")() || !to("192.0.2.7")() {
		t.Fatal("the first addresses do not count")
	}
	node("n1", "192.0.2.6", "n1.example.org", "fd00::6")
	l.eventually("the node reaches its pod from its new address", l.from("db", "eth0", "192.0.2.6"))
	if l.from("db", "eth0", "192.0.2.1")() || to("192.0.2.6")() || to("fd00::6")() || !to("192.0.2.1")() {
		t.Error("the earlier address of the node counts, or its new one is not protected")
	}
	node("n2", "192.0.2.7")
	l.eventually("the port of another node is denied", not(to("192.0.2.7")))
	node("n2", "192.0.2.8")
	l.eventually("the port at its new address is denied", not(to("192.0.2.8")))
	if !to("192.0.2.7")() {
		t.Error("the port at its earlier address is denied")
	}
	l.Remove("nodes", "", "n2")
	l.eventually("the port of a removed node is permitted", to("192.0.2.8"))
	link := []netip.Prefix{netip.MustParsePrefix("10.1.0.2/32")}
	var rules policy.Lists
	l.eventually("a change of the link's address changes the rules", func() bool {
		rules = l.Changed(link)["a/db"]["eth0"]
		return rules[policy.Ingress] != nil
	})
	for remote, want := range map[string]bool{"10.1.0.2": true, "10.1.0.1": false} {
		if got := rules[policy.Ingress].Decide(netip.MustParseAddr(remote), policy.TCP,
			80).Action == policy.Allow; got != want {
			t.Errorf("from the address %s of the link: permitted %t, want %t", remote, got, want)
		}
	}
}

// An attachment that is gone leaves nothing: another pod of its name is not closed, and its addresses are no peers.
func TestDismissedAttachmentLeavesNothing(t *testing.T) {
	l := newLab(t, nil)
	l.policy("p", onlyFrom("db", "web"))
	l.pod("db", "n1", "10.1.0.5", nil)
	l.web("web", "10.1.0.7", func(o *corev1.Pod) {
		o.Spec.NodeName = "n1"
		o.Status.PodIPs = nil // kubelet has not reported it
	})
	l.run()
	l.admit(attachment("db", "eth0 default 10.1.0.5"))
	web := attachment("web", "eth0 default 10.1.0.7")
	l.admit(web)
	l.eventually("a pod of this node is a peer before kubelet has reported it", l.from("db", "eth0", "10.1.0.7"))
	l.Dismiss(web)
	l.eventually("the address of a dismissed attachment is denied", not(l.from("db", "eth0", "10.1.0.7")))
	if changed := l.Changed(nodeLink); len(changed["a/web"]) > 0 {
		t.Errorf("a dismissed pod has rules: %v", changed)
	}
}
