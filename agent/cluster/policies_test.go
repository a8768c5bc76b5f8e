package cluster

import (
	"context"
	"errors"
	"log/slog"
	"testing"

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
			if reported := !p.Health.Holds(health.Policies); reported != tt.report || asked != tt.report {
				t.Errorf("reported: %v, the API server was asked: %v, want %v", reported, asked, tt.report)
			}
		})
	}
}

func policiesOf(count func(context.Context) (int, error), attachments ...pod.Attachment) *UnenforcedPolicies {
	log := slog.New(slog.DiscardHandler)
	h := health.New("", log)
	h.Advise(health.Policies)
	list := func() []pod.Attachment { return attachments }
	return &UnenforcedPolicies{Count: count, Health: h, Log: log, Attachments: list}
}

func TestTheConditionPoliciesFollowsTheirNumber(t *testing.T) {
	n := 3
	away := error(nil)
	p := policiesOf(func(context.Context) (int, error) { return n, away }, attached(pod.ModePrimary, "eth0"))
	const want = "network policies: 3 are not enforced; set kubernetes.enforcePolicies: true, or kubernetes.reportNetworkPolicies: false where another component enforces them"
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
		n = step.n
		away = step.away
		p.poll(t.Context())
		_, conditions := p.Health.Snapshot()
		if c := conditions[len(conditions)-1]; c.OK != step.ok || c.Message != step.says || !c.Advisory {
			t.Errorf("with %d policies and error %v the condition is %+v", step.n, step.away, c)
		}
	}
}
