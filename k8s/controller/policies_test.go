package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// policy writes a NetworkPolicy with a generation.
func (l *lab) policy(name string, generation int64, set ...func(*networkingv1.NetworkPolicy)) {
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: name, UID: types.UID("uid of " + name), Generation: generation,
	}}
	for _, s := range set {
		s(p)
	}
	l.Put("networkpolicies.networking.k8s.io", p)
}

// reportPolicies runs a reporter until the returned function is called, or the test ends.
func (l *lab) reportPolicies() (stop func()) {
	l.t.Helper()
	r := newPolicyReporter(l.client(), slog.New(slog.NewTextHandler(l.t.Output(), nil)))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		defer close(ended)
		ended <- r.Run(ctx)
	}()
	stop = func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			l.t.Errorf("the reporter ended with %v", err)
		}
	}
	l.t.Cleanup(stop)
	return stop
}

// policyEvents returns the names of the NetworkPolicies with Events.
func (l *lab) policyEvents() []string {
	l.t.Helper()
	list, err := l.client().Events("").List(l.t.Context(), metav1.ListOptions{})
	if err != nil {
		l.t.Fatal(err)
	}
	var names []string
	for _, e := range list.Items {
		names = append(names, e.InvolvedObject.Name)
	}
	slices.Sort(names)
	return names
}

// awaitEvents waits until the NetworkPolicies have Events, one for each occurrence of the name.
func (l *lab) awaitEvents(names ...string) {
	l.t.Helper()
	l.eventually(fmt.Sprintf("the events are of %v", names), func() bool {
		return slices.Equal(l.policyEvents(), names)
	})
}

func TestANetworkPolicyIsReportedAsNotEnforced(t *testing.T) {
	l := newLab(t)
	l.policy("deny", 1)
	l.reportPolicies()
	l.awaitEvents("deny")
	list, err := l.client().Events("shop").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("events %v, error %v", list, err)
	}
	e := list.Items[0]
	object := corev1.ObjectReference{
		APIVersion: "networking.k8s.io/v1",
		Kind:       "NetworkPolicy",
		Namespace:  "shop",
		Name:       "deny",
		UID:        "uid of deny",
	}
	if e.Type != "Warning" || e.Reason != "WeftPolicyNotEnforced" || e.InvolvedObject != object ||
		e.Source.Component != "weft-controller" ||
		!strings.HasPrefix(e.Message, "not enforced: Weft makes the main interface") {
		t.Errorf("the event is %+v", e)
	}
}

func TestANetworkPolicyIsReportedOnceForEachGeneration(t *testing.T) {
	l := newLab(t)
	l.policy("a", 1)
	stop := l.reportPolicies()
	l.awaitEvents("a")
	l.policy("a", 1, func(p *networkingv1.NetworkPolicy) { p.Labels = map[string]string{"team": "blue"} })
	l.policy("b", 1) // reported after the change
	l.awaitEvents("a", "b")
	l.policy("a", 2)
	l.awaitEvents("a", "a", "b")
	stop()
	l.reportPolicies()
	l.policy("c", 1)
	l.awaitEvents("a", "a", "b", "c")
	l.Remove("networkpolicies.networking.k8s.io", "shop", "a")
	l.policy("a", 1, func(p *networkingv1.NetworkPolicy) { p.UID = "of another one" })
	l.awaitEvents("a", "a", "a", "b", "c")
}

func TestANetworkPolicyIsReportedWhenTheAPIServerAcceptsEventsAgain(t *testing.T) {
	l := newLab(t)
	var refused atomic.Int64
	l.Fail(func(r *http.Request) int {
		if r.Method == http.MethodPost && refused.Add(1) <= 2 {
			return http.StatusInternalServerError
		}
		return 0
	})
	l.policy("deny", 1)
	l.reportPolicies()
	l.awaitEvents("deny")
}

func TestOnlyTheMetadataOfNetworkPoliciesIsRead(t *testing.T) {
	l := newLab(t)
	l.Fail(func(r *http.Request) int {
		if strings.HasSuffix(r.URL.Path, "/networkpolicies") &&
			!strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata") {
			t.Errorf("%s %s wants %s", r.Method, r.URL, r.Header.Get("Accept"))
		}
		return 0
	})
	l.policy("deny", 1)
	l.reportPolicies()
	l.awaitEvents("deny")
	if n, err := l.client().CountPolicies(t.Context()); err != nil || n != 1 {
		t.Errorf("%d policies, error %v", n, err)
	}
}

func TestNetworkPoliciesAreCountedByTheAPIServer(t *testing.T) {
	l := newLab(t)
	for want := range 4 {
		if n, err := l.client().CountPolicies(t.Context()); err != nil || n != want {
			t.Errorf("%d policies, want %d, error %v", n, want, err)
		}
		l.policy(fmt.Sprintf("p%d", want), 1)
	}
	for _, r := range l.Requests() {
		if strings.Contains(r, "networkpolicies") && !strings.Contains(r, "limit=1") {
			t.Errorf("it asked for all of them: %s", r)
		}
	}
	l.Disconnect()
	if n, err := l.client().CountPolicies(t.Context()); err == nil {
		t.Errorf("%d policies without an API server", n)
	}
}

func TestTheLeaderReportsNetworkPoliciesIfConfigured(t *testing.T) {
	for _, on := range []bool{false, true} {
		l := newLab(t)
		l.Put("networkpolicies.networking.k8s.io", &networkingv1.NetworkPolicy{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "deny"},
		})
		c := l.replica("a", func(c *Config) { c.ReportPolicies = on })
		l.start("replica", c.Run)
		l.network("blue", nil)
		l.eventually("it works", func() bool { return l.get("blue").Status.VNI != 0 })
		requests := func(of string) bool {
			return slices.ContainsFunc(l.Requests(), func(r string) bool { return strings.Contains(r, of) })
		}
		if on {
			l.eventually("the author gets an Event", func() bool {
				return requests("POST /api/v1/namespaces/default/events")
			})
		}
		if asked := requests("/networkpolicies"); asked != on {
			t.Errorf("on: %v, it asked for NetworkPolicies: %v", on, asked)
		}
	}
}
