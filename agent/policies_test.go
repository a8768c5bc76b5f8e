package agent

import (
	"fmt"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestStatusShowsTheNumberOfUnenforcedNetworkPolicies(t *testing.T) {
	const resource = "networkpolicies.networking.k8s.io"
	l, server := clusterLab(t)
	for i := range 3 {
		server.Put(resource, &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: fmt.Sprintf("p%d", i)}})
	}
	shows := func(want string) func() bool {
		return func() bool {
			text, err := l.Weftctl(t.Context(), "status") // an error if the agent is not ready
			return err == nil && strings.Contains(strings.Join(strings.Fields(text), " "), want)
		}
	}
	l.eventually("status shows no policies", shows("policies yes"))
	a := l.pod("a")
	l.put(server, a, nil)
	l.cni("ADD", a, nil)
	restart := func() { l.restartAfter(func(string) error { return nil }) } // it polls at its start
	restart()
	l.eventually("status shows the number", shows("policies no network policies: 3 are not enforced (Weft enforces none)"))
	for i := range 3 {
		server.Remove(resource, "lab", fmt.Sprintf("p%d", i))
	}
	restart()
	l.eventually("status shows no policies", shows("policies yes"))
	l.cni("DEL", a, nil)
}
