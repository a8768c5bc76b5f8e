package controller

import (
	"slices"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestTheLeaderReportsNetworkPoliciesIfConfigured(t *testing.T) {
	for _, on := range []bool{false, true} {
		l := newLab(t)
		l.Put("networkpolicies.networking.k8s.io", &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "deny"}})
		c := l.replica("a", func(c *Config) { c.ReportPolicies = on })
		l.start("replica", c.Run)
		l.network("blue", nil)
		l.eventually("it works", func() bool { return l.get("blue").Status.VNI != 0 })
		requests := func(of string) bool {
			return slices.ContainsFunc(l.Requests(), func(r string) bool { return strings.Contains(r, of) })
		}
		if on {
			l.eventually("the author is told", func() bool { return requests("POST /api/v1/namespaces/default/events") })
		}
		if asked := requests("/networkpolicies"); asked != on {
			t.Errorf("on: %v, it asked for NetworkPolicies: %v", on, asked)
		}
	}
}
