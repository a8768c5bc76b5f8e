package policies_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/k8s/policies"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/policy"
)

// A pod was read at its ADD, before a watch had shown it. Later its labels changed, so that a policy isolates it, and
// then it was deleted with force, while its sandbox exists. It is closed, and does not get the rules of its first
// labels again.
func TestDeletedPodDoesNotGetTheRulesOfItsFirstLabels(t *testing.T) {
	for name, uid := range map[string]string{"the runtime passes the UID": "uid-x", "it does not": ""} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, nil)
			l.policy("p", onlyFrom("db", "web"))
			l.run()
			l.stopWatches()
			l.pod("x", "n1", "10.1.0.5", nil) // open
			a := attachment("x", "eth0 default 10.1.0.5")
			a.Pod.UID = uid
			l.Learn(t.Context(), a.Pod)
			l.admit(a)
			isOpen := func() bool { return l.permits("x", "eth0", policy.Ingress, "10.1.1.9", 80) }
			if !isOpen() {
				t.Fatal("not open")
			}
			l.Fail(nil)
			l.pod("x", "n1", "10.1.0.5", func(o *corev1.Pod) { o.Labels = map[string]string{"app": "db"} })
			l.pod("other", "n2", "10.1.1.7", func(o *corev1.Pod) { o.Labels = map[string]string{"app": "web"} })
			peer := func() bool { return l.permits("x", "eth0", policy.Ingress, "10.1.1.7", 80) }
			l.eventually("it is isolated, except from its peer", func() bool { return !isOpen() && peer() })
			l.Remove("pods", "a", "x")
			l.eventually("it is closed", func() bool { return !peer() })
			if isOpen() {
				t.Error("a pod that is deleted is open by labels that it had at its ADD")
			}
			l.policy("q", onlyFrom("later", "web"))
			l.pod("x", "n1", "10.1.0.6", func(o *corev1.Pod) { o.UID = "uid of its successor" }) // open
			later := attachment("later", "eth0 default 10.1.0.8")
			l.pod("later", "n1", "10.1.0.8", nil)
			l.admit(later)
			l.eventually("the watch has shown a later pod", func() bool {
				return l.permits("later", "eth0", policy.Ingress, "10.1.1.7", 80)
			})
			if isOpen() {
				t.Error("the sandbox of a deleted pod has the rules of the next pod of its name")
			}
		})
	}
}

// On a network without cidrs a pod chooses its address (contivpp.io/custom-if-options, "ips"; DHCP). Of pods of other
// nodes it counts for policies of their own namespace only. Of a pod of this node it must not count for other
// namespaces either: its owner names the address of a machine or of a pod of another node, which the policy did not
// permit.
func TestChosenAddressOfALocalPodOpensNoPodOfAnotherNamespace(t *testing.T) {
	l := newLab(t, nil)
	l.Put("namespaces", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "b"}})
	l.peersOn("lan", "web")
	l.pod("db", "n1", "10.1.0.5", nil)
	l.pod("web", "n1", "10.1.0.6", func(o *corev1.Pod) { o.Namespace = "b" })
	l.pod("web2", "n2", "10.1.1.6", func(o *corev1.Pod) {
		says(said{"lan", "net1", []string{"10.9.0.98"}})(o)
		o.Namespace = "b"
		o.Labels = map[string]string{"app": "web"}
	})
	l.pod("web3", "n2", "10.1.1.7", func(o *corev1.Pod) {
		says(said{"lan", "net1", []string{"10.9.0.97"}})(o)
		o.Labels = map[string]string{"app": "web"}
	})
	networks := policies.Networks{Blocks: map[string][]pod.NodePart{}, CIDRs: map[string]bool{"lan": false}}
	l.SetNetworks(networks)
	l.run()
	l.admit(attachment("db", "eth0 default 10.1.0.5", "net1 lan 10.9.0.5"))
	web := attachment("web", "eth0 default 10.1.0.6", "net1 lan 10.9.0.99")
	web.Pod.Namespace = "b"
	l.admit(web)
	l.eventually("the policy isolates the pod", func() bool {
		return !l.permits("db", "net1", policy.Ingress, "10.9.0.1", 80)
	})
	l.pod("own", "n1", "10.1.0.7", func(o *corev1.Pod) { o.Labels = map[string]string{"app": "web"} })
	l.admit(attachment("own", "eth0 default 10.1.0.7", "net1 lan 10.9.0.100"))
	l.eventually("the address that a pod of the policy's namespace chose is permitted", func() bool {
		return l.permits("db", "net1", policy.Ingress, "10.9.0.100", 80) &&
			l.permits("db", "net1", policy.Ingress, "10.9.0.97", 80)
	})
	for where, address := range map[string]string{"another node": "10.9.0.98", "this node": "10.9.0.99"} {
		if l.permits("db", "net1", policy.Ingress, address, 80) {
			t.Errorf("the address that a pod of another namespace on %s chose is permitted", where)
		}
	}
	networks.CIDRs = map[string]bool{"lan": true} // now Weft gives the addresses
	l.SetNetworks(networks)
	l.eventually("an address that Weft gave a pod of this node is permitted", func() bool {
		return l.permits("db", "net1", policy.Ingress, "10.9.0.99", 80)
	})
	l.eventually("an address outside the blocks of its node is not permitted any more", func() bool {
		return !l.permits("db", "net1", policy.Ingress, "10.9.0.97", 80)
	})
	l.SetNetworks(policies.Networks{}) // it is deleted, and pods are still on it
	l.eventually("nothing counts on a network of which nothing is known", func() bool {
		return !l.permits("db", "net1", policy.Ingress, "10.9.0.99", 80)
	})
}
