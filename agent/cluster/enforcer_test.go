package cluster

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/eventloop/eventlooptest"
	"github.com/weftnet/weft/ipnet/attach"
	"github.com/weftnet/weft/k8s/client"
	"github.com/weftnet/weft/k8s/k8stest"
	"github.com/weftnet/weft/k8s/policies"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/policy"
)

func shopOf(t *testing.T) (*k8stest.Server, *Enforcer, pod.Attachment) {
	t.Helper()
	server := k8stest.New(t)
	server.Put("namespaces", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	server.Put("pods", &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u"}, Spec: corev1.PodSpec{NodeName: "n1"},
		Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "10.1.0.5"}}},
	})
	c, err := client.New(server.Connection())
	if err != nil {
		t.Fatal(err)
	}
	web := pod.Attachment{
		Key: pod.Key{Network: "weft", ContainerID: "c", IfName: "eth0"}, Mode: pod.ModePrimary,
		Pod:        pod.ID{Namespace: "shop", Name: "web", UID: "u"},
		Created:    time.Unix(1, 0),
		Interfaces: []pod.Interface{{Name: "eth0", Type: pod.TypeTap}},
	}
	e := &Enforcer{
		Policies:    policies.New(policies.Config{Node: "n1", Client: c}),
		Attachments: func() []pod.Attachment { return []pod.Attachment{web} },
		Health:      health.New("", slog.New(slog.DiscardHandler)), Log: slog.New(slog.DiscardHandler),
	}
	watch(t, e)
	return server, e, web
}

// watch runs the watches of an enforcer's policies until the test ends, and returns when the policies are known.
func watch(t *testing.T, e *Enforcer) {
	t.Helper()
	e.Health.Advise(health.Policies)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = e.Policies.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	e.Policies.SetClients(policy.ClientMap{}, nil)
	k8stest.Eventually(t, "the policies are known", e.Policies.Synced)
}

// The API server refuses the list and the watch of NetworkPolicies, such as after a change of RBAC: new policies are
// not applied.
func TestTheConditionPoliciesSaysThatChangesMayBeUnknown(t *testing.T) {
	server, e, web := shopOf(t)
	e.Policies.Admit(&web, nil)
	server.Fail(func(r *http.Request) int {
		if strings.Contains(r.URL.Path, "networkpolicies") {
			return http.StatusForbidden
		}
		return 0
	})
	server.DropWatches()
	k8stest.Eventually(t, "the watch fails", func() bool { return e.Policies.Failure() != nil })
	server.Put("networkpolicies.networking.k8s.io", &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "deny"},
	})
	e.report()
	if got := e.Health.Failure(health.Policies); !strings.Contains(got,
		"policies cannot be watched, so changes may be unknown, and the last known rules hold: ") {
		t.Errorf("the condition says %q, although: %v", got, e.Policies.Failure())
	}
	server.Fail(nil)
	k8stest.Eventually(t, "the policy is known", func() bool { return e.Policies.Failure() == nil })
	e.report()
	if got := e.Health.Failure(health.Policies); got != "" {
		t.Errorf("the condition says %q when all is known again", got)
	}
}

// slowEvent is an event that takes long.
type slowEvent struct{ pod.Partial }

func (*slowEvent) String() string { return "slow" }

// The event that applies changed rules is refused because the queue is full. It is repeated when no object of the
// cluster changes, too.
func TestARefusedEventOfPoliciesIsRepeated(t *testing.T) {
	const events = 5000 // more than wait
	server, e, web := shopOf(t)
	e.Policies.Admit(&web, nil)
	e.Loop = eventloop.New(eventloop.Config{
		Committer: &eventlooptest.Committer{},
		Saver:     &eventlooptest.Saver{},
	})
	var applied atomic.Int64
	free := make(chan struct{})
	release := sync.OnceFunc(func() { close(free) })
	defer release()
	eventloop.On(e.Loop, "policies", func(context.Context, *attach.ChangePolicies, *eventloop.Txn) error {
		applied.Add(int64(len(e.Policies.Changed(nil))))
		return nil
	})
	busy := make(chan struct{}, events)
	eventloop.On(e.Loop, "slow", func(context.Context, *slowEvent, *eventloop.Txn) error {
		busy <- struct{}{}
		<-free
		return nil
	})
	eventlooptest.Ready(t, e.Loop)
	for range events {
		go func() { _, _ = e.Loop.Do(t.Context(), &slowEvent{}) }()
	}
	<-busy
	k8stest.Eventually(t, "the queue is full", func() bool {
		stats := e.Loop.Stats()
		return stats.Refused > 0 && 1+stats.Queue+int(stats.Refused) == events
	})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	refused := e.Loop.Stats().Refused
	running.Go(func() { _ = e.Run(ctx) })
	server.Put("networkpolicies.networking.k8s.io", &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "deny"},
	})
	k8stest.Eventually(t, "the event is refused", func() bool { return e.Loop.Stats().Refused > refused })
	release()
	k8stest.Eventually(t, "the policy is applied", func() bool { return applied.Load() > 0 })
}
