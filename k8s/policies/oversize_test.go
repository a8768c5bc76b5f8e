package policies_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/weftnet/weft/policy"
)

// blocksOf returns a policy that allows from a number of addresses, beginning with 10.100.0.0.
func blocksOf(subject string, count int) networkingv1.NetworkPolicySpec {
	spec := networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": subject}},
		Ingress:     []networkingv1.NetworkPolicyIngressRule{{}},
	}
	for n := range count {
		spec.Ingress[0].From = append(spec.Ingress[0].From, networkingv1.NetworkPolicyPeer{
			IPBlock: &networkingv1.IPBlock{CIDR: fmt.Sprintf("10.%d.%d.%d/32", 100+n>>16, n>>8&255, n&255)},
		})
	}
	return spec
}

// excessOf returns what is over a limit for a policy.
func (l *lab) excessOf(of string) (policy.Excess, bool) {
	for _, x := range l.Excess() {
		if x.Of == of {
			return x, true
		}
	}
	return policy.Excess{}, false
}

// A policy that is too large isolates the pods that it selects, and says why. Pods of other policies and namespaces
// keep their rules.
func TestPolicyWithTooManyPartsIsolates(t *testing.T) {
	l := newLab(t, nil)
	for _, name := range []string{"db", "other"} {
		l.pod(name, "n1", "10.1.0.5", nil)
	}
	l.policy("small", blocksOf("other", 1))
	l.policy("p", blocksOf("db", 10))
	l.run()
	for _, name := range []string{"db", "other"} {
		l.admit(attachment(name, "eth0 default 10.1.0.5"))
	}
	check := func(when string, isOver bool) {
		t.Helper()
		l.eventually(when+": the limit is named", func() bool {
			x, is := l.excessOf("NetworkPolicy a/p")
			return is == isOver && (!isOver || x.Limit == policy.MaxParts && x.Size > x.Limit)
		})
		if got := l.permits("db", "eth0", policy.Ingress, "10.100.0.0", 80); got == isOver {
			t.Errorf("%s: an address of the policy is permitted: %t", when, got)
		}
		if l.permits("db", "eth0", policy.Ingress, "203.0.113.1", 80) ||
			!l.permits("db", "eth0", policy.Egress, "203.0.113.1", 80) {
			t.Errorf("%s: the policy isolates otherwise", when)
		}
		if !l.permits("other", "eth0", policy.Ingress, "10.100.0.0", 80) {
			t.Errorf("%s: another policy is affected", when)
		}
		if list := l.Invalid(); len(list) > 0 {
			t.Errorf("%s: invalid are %v", when, list)
		}
	}
	check("small", false)
	l.policy("p", blocksOf("db", policy.MaxParts))
	check("large", true)
	l.policy("p", blocksOf("db", 10))
	check("small again", false)
	l.policy("p", blocksOf("db", policy.MaxParts+5))
	check("large again", true)
	l.Remove(networkPolicies, "a", "p")
	l.eventually("without the policy the pod is open", l.from("db", "eth0", "203.0.113.1"))
	if list := l.Excess(); len(list) > 0 {
		t.Errorf("without the policy over a limit are %v", list)
	}
}

// The policies of a namespace have a limit together. The largest ones are left out, whatever the order of events, and
// return when there is room.
func TestPoliciesOfANamespaceWithTooManyPartsIsolate(t *testing.T) {
	l := newLab(t, nil)
	l.Put("namespaces", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "b"}})
	l.pod("db", "n1", "10.1.0.5", nil)
	l.policy("p", blocksOf("db", 8_500))
	l.run()
	l.admit(attachment("db", "eth0 default 10.1.0.5"))
	permitted := l.from("db", "eth0", "10.100.0.0")
	l.eventually("alone it is applied", permitted)
	spec := blocksOf("none", 0)
	spec.Ingress = make([]networkingv1.NetworkPolicyIngressRule, 8_000)
	smaller := func(namespace string, count int) {
		for n := range count {
			l.Put(networkPolicies, &networkingv1.NetworkPolicy{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint("many", n)}, Spec: spec,
			})
		}
	}
	smaller("b", 20)
	smaller("a", policy.MaxNamespaceParts/8_000)
	l.eventually("it has no room", not(permitted))
	x, _ := l.excessOf("NetworkPolicy a/p")
	if x.Limit != policy.MaxNamespaceParts || !strings.Contains(x.String(), "namespace") {
		t.Errorf("over a limit is %v", l.Excess())
	}
	for n := range policy.MaxNamespaceParts / 8_000 {
		l.Remove(networkPolicies, "a", fmt.Sprint("many", n))
	}
	l.eventually("it has room again, whatever another namespace has", permitted)
}

// putMulti puts a MultiNetworkPolicy a/p of any spec.
func (l *lab) putMulti(spec, networks string) {
	l.Helper()
	o := &unstructured.Unstructured{}
	text := `{"apiVersion": "k8s.cni.cncf.io/v1beta1", "kind": "MultiNetworkPolicy", "spec": ` + spec + `}`
	if err := json.Unmarshal([]byte(text), &o.Object); err != nil {
		l.Fatal(err)
	}
	o.SetNamespace("a")
	o.SetName("p")
	o.SetAnnotations(map[string]string{policy.AnnotationFor: networks})
	l.Put(multiPolicies, o)
}

// admitTwo runs, and admits pods of namespace a with an interface on each of three networks.
func (l *lab) admitTwo() {
	l.Helper()
	names := []string{"db", "other"}
	for _, name := range names {
		l.pod(name, "n1", "10.1.0.5", nil)
	}
	l.run()
	for _, name := range names {
		l.admit(attachment(name, "eth0 default 10.1.0.5", "net1 red 10.6.0.5", "net2 blue 10.7.0.5"))
	}
}

// Whatever the kind of a large policy, it denies, and the other pods keep their rules.
func TestOversizePoliciesOfAllKindsFailClosed(t *testing.T) {
	large := strings.Repeat(`{"ports": []},`, policy.MaxParts) + `{}`
	l := newLab(t, nil)
	l.putMulti(`{"podSelector": {"matchLabels": {"app": "db"}}, "ingress": [`+large+`]}`, "red")
	deny := `{"action": "Deny", "to": [{"networks": ["192.0.2.0/24"]}]}`
	l.putAdmin("AdminNetworkPolicy", "p",
		`{"priority": 5, SUBJECT, "egress": [`+strings.Repeat(deny+",", policy.MaxParts)+deny+`]}`, `{}`)
	l.admitTwo()
	for _, tt := range []struct {
		name, nic string
		d         policy.Direction
		want      bool
	}{
		{"db", "net1", policy.Ingress, false},
		{"db", "net1", policy.Egress, true},
		{"db", "net2", policy.Ingress, true},
		{"db", "eth0", policy.Egress, false},
		{"db", "eth0", policy.Ingress, true},
		{"other", "net1", policy.Ingress, true},
		{"other", "eth0", policy.Egress, true},
	} {
		if got := l.permits(tt.name, tt.nic, tt.d, "203.0.113.1", 80); got != tt.want {
			t.Errorf("%s %s %s: permitted %t, want %t", tt.name, tt.nic, tt.d, got, tt.want)
		}
	}
	for _, of := range []string{"MultiNetworkPolicy a/p", "AdminNetworkPolicy p"} {
		if x, is := l.excessOf(of); !is || x.Limit != policy.MaxParts {
			t.Errorf("%s: over a limit are %v", of, l.Excess())
		}
	}
	l.putAdmin("BaselineAdminNetworkPolicy", "default",
		`{SUBJECT, "ingress": [`+strings.Repeat(`{"action": "Deny"},`, policy.MaxParts+1)+`{}]}`, `{}`)
	l.eventually("the baseline denies", not(l.from("db", "eth0", "203.0.113.1")))
	if !l.permits("other", "eth0", policy.Ingress, "203.0.113.1", 80) {
		t.Error("the baseline denies another pod")
	}
}

// Too many networks may be any.
func TestOversizePolicyOfTooManyNetworksIsAboutAll(t *testing.T) {
	l := newLab(t, nil)
	const selectsDB = `{"podSelector": {"matchLabels": {"app": "db"}}}`
	l.putMulti(selectsDB, "red")
	l.admitTwo()
	check := func(when string, isOfAll bool) {
		t.Helper()
		l.eventually(when+": the other network", func() bool {
			return l.permits("db", "net2", policy.Ingress, "203.0.113.1", 80) != isOfAll
		})
		if l.permits("db", "net1", policy.Ingress, "203.0.113.1", 80) {
			t.Errorf("%s: the policy is not about its network", when)
		}
		if !l.permits("other", "net2", policy.Ingress, "203.0.113.1", 80) ||
			!l.permits("db", "eth0", policy.Ingress, "203.0.113.1", 80) {
			t.Errorf("%s: the policy is about another interface", when)
		}
	}
	check("one network", false)
	l.putMulti(selectsDB, strings.Repeat("x,", policy.MaxParts)+"red")
	check("many networks", true)
	l.putMulti(selectsDB, "red")
	check("one network again", false)
}
