package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/pod"
)

// attached is an attachment of a pod.
func attached(mode, name string) pod.Attachment {
	return pod.Attachment{Key: pod.Key{IfName: name}, Mode: mode, Pod: pod.ID{Namespace: "shop", Name: "web"}}
}

func TestNetworkPoliciesAreReportedOnlyWhereMainInterfacesAreWefts(t *testing.T) {
	for name, tt := range map[string]struct {
		of     pod.Attachment
		report bool
	}{
		"main CNI":                    {attached(pod.ModePrimary, "eth0"), true},
		"main CNI of an old record":   {attached("", "eth0"), true},
		"chained behind another CNI":  {attached(pod.ModeChained, "eth0"), false},
		"delegate of Multus":          {attached(pod.ModeDelegate, "net1"), false},
		"called by Multus for a net1": {attached("", "net1"), false},
		"addresses only":              {attached(pod.ModeIPAM, "eth0"), false},
		"no pod":                      {pod.Attachment{Key: pod.Key{IfName: "eth0"}, Mode: pod.ModePrimary}, false},
	} {
		t.Run(name, func(t *testing.T) {
			asked := false
			p := policiesOf(func(context.Context) (int, error) { asked = true; return 3, nil }, tt.of)
			p.poll(t.Context())
			if reported := !p.health.Holds(health.Policies); reported != tt.report || asked != tt.report {
				t.Errorf("reported: %v, the API server was asked: %v, want %v", reported, asked, tt.report)
			}
		})
	}
}

func policiesOf(count func(context.Context) (int, error), attachments ...pod.Attachment) *policies {
	log := slog.New(slog.DiscardHandler)
	h := health.New("", log)
	h.Advise(health.Policies)
	return &policies{count: count, health: h, log: log, attachments: func() []pod.Attachment { return attachments }}
}

func TestTheConditionPoliciesFollowsTheirNumber(t *testing.T) {
	n, away := 3, error(nil)
	p := policiesOf(func(context.Context) (int, error) { return n, away }, attached(pod.ModePrimary, "eth0"))
	const want = "network policies: 3 are not enforced (Weft enforces none); kubernetes.reportNetworkPolicies: false where another component does"
	for _, step := range []struct {
		n    int
		away error
		ok   bool
		says string
	}{
		{3, nil, false, want},
		{0, errors.New("the API server is away"), false, want},
		{0, nil, true, ""},
		{3, errors.New("the API server is away"), true, ""},
	} {
		n, away = step.n, step.away
		p.poll(t.Context())
		_, conditions := p.health.Snapshot()
		if c := conditions[len(conditions)-1]; c.OK != step.ok || c.Message != step.says || !c.Advisory {
			t.Errorf("with %d policies and error %v the condition is %+v", step.n, step.away, c)
		}
	}
}

func TestStatusShowsHowManyNetworkPoliciesAreNotEnforced(t *testing.T) {
	const resource = "networkpolicies.networking.k8s.io"
	l, server := clusterLab(t)
	for i := range 3 {
		server.Put(resource, &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: fmt.Sprintf("p%d", i)}})
	}
	shows := func(want string) func() bool {
		return func() bool {
			text, err := l.Weftctl(t.Context(), "status") // it fails if the agent is not ready
			return err == nil && strings.Contains(strings.Join(strings.Fields(text), " "), want)
		}
	}
	l.eventually("there is no pod yet", shows("policies yes"))
	a := l.pod("a")
	l.put(server, a, nil)
	l.cni("ADD", a, nil)
	restart := func() { l.restartAfter(func(string) error { return nil }) } // it polls when it starts
	restart()
	l.eventually("status shows the number", shows("policies no network policies: 3 are not enforced (Weft enforces none)"))
	for i := range 3 {
		server.Remove(resource, "lab", fmt.Sprintf("p%d", i))
	}
	restart()
	l.eventually("status is quiet", shows("policies yes"))
	l.cni("DEL", a, nil)
}
