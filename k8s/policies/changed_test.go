package policies_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/weftnet/weft/k8s/api/npwg"
	"github.com/weftnet/weft/policy"
)

// A pod that was deleted while the agent was away may have kept open rules of the earlier run. Its sandbox may still be
// there.
func TestRestoredPodThatIsGoneIsClosedWhenAllObjectsAreKnown(t *testing.T) {
	for what, namespace := range map[string]string{"its namespace is there": "a", "its namespace is gone": "b"} {
		t.Run(what, func(t *testing.T) {
			l := newLab(t, nil)
			gone := attachment("gone", "eth0 default 10.1.0.5")
			gone.Pod.Namespace = namespace
			l.Admit(gone, nodeLink)
			l.run()
			var rules map[string]policy.Lists
			l.eventually("its rules are returned", func() bool {
				rules = l.Changed(nodeLink)[gone.Pod.String()]
				return rules != nil
			})
			for _, d := range []policy.Direction{policy.Ingress, policy.Egress} {
				if list := rules["eth0"][d]; list == nil ||
					list.Decide(netip.MustParseAddr("10.1.1.5"), policy.TCP, 80).Action == policy.Allow {
					t.Errorf("%s is open: %v", d, list)
				}
			}
		})
	}
}

// blocksOn puts a policy for a network that allows 300 addresses at 250 ports each, which cannot be joined.
func (l *lab) blocksOn(network string) {
	var rule networkingv1.NetworkPolicyIngressRule
	for n := range 300 {
		cidr := fmt.Sprintf("10.9.%d.%d/32", n/100, n%100*2)
		rule.From = append(rule.From, networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: cidr}})
	}
	for n := range 250 {
		port := intstr.FromInt32(int32(1000 + 2*n))
		rule.Ports = append(rule.Ports, networkingv1.NetworkPolicyPort{Port: &port})
	}
	l.Put(multiPolicies, &npwg.MultiNetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   "a",
			Name:        network,
			Annotations: map[string]string{policy.AnnotationFor: network},
		},
		Spec: networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{rule}},
	})
}

// No event may be too small for a pod: its rules would never change again.
func TestPodWithMoreRulesThanAnEventAppliesGetsThem(t *testing.T) {
	l := newLab(t, nil)
	l.pod("db", "n1", "10.1.0.5", nil)
	l.run()
	l.admit(attachment("db", "eth0 default 10.1.0.5", "net1 red 10.6.0.5", "net2 blue 10.7.0.5"))
	l.blocksOn("red")
	l.blocksOn("blue")
	l.eventually("the pod gets the rules of both networks", func() bool {
		size := 0
		for _, lists := range l.Changed(nodeLink)["a/db"] {
			if list := lists[policy.Ingress]; list != nil {
				size += list.Size(false)
			}
		}
		return size >= 2*300*250
	})
}

// The reader is told of the rest, as nothing else may change for hours.
func TestRulesThatAreTooManyForAnEventAreToldAfterIt(t *testing.T) {
	l := newLab(t, nil)
	l.pod("db", "n1", "10.1.0.5", nil)
	l.pod("web", "n1", "10.1.0.6", nil)
	l.run()
	l.admit(attachment("db", "eth0 default 10.1.0.5", "net1 red 10.6.0.5"))
	l.admit(attachment("web", "eth0 default 10.1.0.6", "net1 red 10.6.0.6"))
	l.blocksOn("red")
	told := map[string]bool{}
	for deadline := time.After(time.Minute); len(told) < 2; {
		select {
		case <-l.NotifyChanged():
		case <-deadline:
			t.Fatalf("only the rules of %v are told", told)
		}
		for id, rules := range l.Changed(nodeLink) {
			if list := rules["net1"][policy.Ingress]; list != nil && list.Size(false) >= 300*250 {
				told[id] = true
			}
		}
	}
}
