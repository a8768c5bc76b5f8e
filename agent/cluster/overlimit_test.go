package cluster

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/k8s/client"
	"github.com/weftnet/weft/k8s/events"
	"github.com/weftnet/weft/k8s/k8stest"
	"github.com/weftnet/weft/k8s/policies"
	"github.com/weftnet/weft/pod"
)

// putBig puts a policy of a namespace that needs as many rules as a number squared.
func putBig(server *k8stest.Server, name string, number int) {
	rule := networkingv1.NetworkPolicyIngressRule{}
	for n := range number {
		port := intstr.FromInt32(int32(1000 + 2*n))
		block := &networkingv1.IPBlock{CIDR: fmt.Sprintf("198.18.%d.%d/32", n/100, 2*(n%100))}
		rule.Ports = append(rule.Ports, networkingv1.NetworkPolicyPort{Port: &port})
		rule.From = append(rule.From, networkingv1.NetworkPolicyPeer{IPBlock: block})
	}
	server.Put("networkpolicies.networking.k8s.io", &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec:       networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{rule}},
	})
}

// The condition names a policy over a limit as long as it is. An Event on a pod that it selects does once each time
// that it comes over the limit.
func TestConditionAndEventNameAPolicyOverALimit(t *testing.T) {
	server := k8stest.New(t)
	server.Put("namespaces", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	server.Put("pods", &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u"}, Spec: corev1.PodSpec{NodeName: "n1"},
		Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "10.1.0.5"}}},
	})
	putBig(server, "big", 300)
	putBig(server, "small", 3)
	c, err := client.New(server.Connection())
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	web := pod.Attachment{
		Key: pod.Key{Network: "weft", ContainerID: "c", IfName: "eth0"}, Mode: pod.ModePrimary,
		Pod:        pod.ID{Namespace: "shop", Name: "web", UID: "u"},
		Created:    time.Unix(1, 0),
		Interfaces: []pod.Interface{{Name: "eth0", Type: pod.TypeTap}},
	}
	var told []events.Note
	e := &Enforcer{
		Policies:    policies.New(policies.Config{Node: "n1", Client: c}),
		Attachments: func() []pod.Attachment { return []pod.Attachment{web} },
		Health:      health.New("", log), Tell: func(n events.Note) { told = append(told, n) }, Log: log,
	}
	watch(t, e)
	e.Policies.Admit(&web, nil)
	const what = "NetworkPolicy shop/big: it isolates pods, but its rules allow nothing, because it needs 90000 rules"
	isOver := func() bool { return len(e.Policies.Excess()) > 0 }
	for round := 1; round <= 2; round++ {
		k8stest.Eventually(t, "the policy is over the limit", isOver)
		for range 3 {
			e.report()
		}
		if got := e.Health.Failure(health.Policies); !strings.HasPrefix(got,
			"1 policies or Services are over a limit of rules: "+what) {
			t.Errorf("round %d: the condition is %q", round, got)
		}
		if len(told) != round {
			t.Fatalf("round %d: %d Events, want one each time that the policy comes over the limit", round, len(told))
		}
		if n := told[round-1]; n.Reason != "WeftPolicyOverLimit" || n.Type != events.Warning || n.Pod != web.Pod ||
			!strings.HasPrefix(n.Text(), what) {
			t.Errorf("round %d: the Event is %+v: %s", round, n, n.Text())
		}
		putBig(server, "big", 2)
		k8stest.Eventually(t, "the policy is within the limit", func() bool { return !isOver() })
		e.report()
		if got := e.Health.Failure(health.Policies); got != "" {
			t.Errorf("round %d: the condition is %q with a smaller policy", round, got)
		}
		putBig(server, "big", 300)
	}
}
