package e2e_test

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/test/e2e/cluster"
)

// theNamespace is Weft's namespace.
const theNamespace = "weft-system"

// reconfigure changes a line of the agents' configuration until the test ends, and restarts the agents.
func (s *space) reconfigure(from, to string) {
	s.t.Helper()
	s.replaceConfig(s.t.Context(), from, to)
	s.t.Cleanup(func() { s.replaceConfig(context.Background(), to, from) })
}

func (s *space) replaceConfig(ctx context.Context, from, to string) {
	s.t.Helper()
	maps := s.c.Client.CoreV1().ConfigMaps(theNamespace)
	there, err := maps.Get(ctx, "weft-agent", metav1.GetOptions{})
	s.must(err)
	text := there.Data["agent.yaml"]
	if !strings.Contains(text, from) {
		s.t.Fatalf("the agents' configuration lacks %q: %s", from, text)
	}
	there.Data["agent.yaml"] = strings.Replace(text, from, to, 1)
	_, err = maps.Update(ctx, there, metav1.UpdateOptions{})
	s.must(err)
	s.restartAgents(ctx)
}

// restartAgents replaces the agents of all nodes and waits for the new ones.
func (s *space) restartAgents(ctx context.Context) {
	s.t.Helper()
	pods := s.c.Client.CoreV1().Pods(theNamespace)
	agents := metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=agent"}
	before, err := pods.List(ctx, agents)
	s.must(err)
	old := make(map[string]bool)
	for _, p := range before.Items {
		old[string(p.UID)] = true
	}
	s.must(pods.DeleteCollection(ctx, metav1.DeleteOptions{}, agents))
	s.must(cluster.Eventually(ctx, "the agents are replaced", func(ctx context.Context) error {
		now, err := pods.List(ctx, agents)
		if err != nil {
			return err
		}
		ready := 0
		for i := range now.Items {
			if p := &now.Items[i]; !old[string(p.UID)] && isReady(p) {
				ready++
			}
		}
		if ready != len(s.c.Nodes) || len(now.Items) != ready {
			return fmt.Errorf("%d of %d are ready", ready, len(now.Items))
		}
		return nil
	}))
}

// acrossNodes makes a pod on each node, and tests that they reach each other.
func (s *space) acrossNodes() {
	s.t.Helper()
	for i, n := range s.c.Nodes {
		s.create(fmt.Sprintf("on-%d", i), n.Name)
	}
	one := s.ready("on-0")
	other := s.ready("on-1")
	for _, address := range s.addresses(other) {
		s.reaches(one, other, address)
	}
	for _, address := range s.addresses(one) {
		s.reaches(other, one, address)
	}
}

// All other tests use tunnels over IPv4.
func TestPodsReachEachOtherWithEachNodeTransport(t *testing.T) {
	needWeft(t)
	s := newSpace(t)
	now := "tunnel: vxlan4"
	t.Cleanup(func() { s.replaceConfig(context.Background(), now, "tunnel: vxlan4") })
	for _, tunnel := range []string{"tunnel: none", "tunnel: vxlan6"} {
		was := now
		now = tunnel
		s.replaceConfig(t.Context(), was, now)
		s.acrossNodes()
		s.deleteAll()
	}
}

// twoPools are the cluster's pools, used instead of the nodes' ranges.
const twoPools = `
apiVersion: contivpp.io/v1
kind: IPPool
metadata: {name: e2e-4}
spec: {cidr: 10.97.0.0/16, blockSize: 29}
---
apiVersion: contivpp.io/v1
kind: IPPool
metadata: {name: e2e-6}
spec: {cidr: "fd00:97::/64", blockSize: 125}
`

func TestPodsHaveAddressesOfClusterPools(t *testing.T) {
	needWeft(t)
	s := newSpace(t)
	s.apply(twoPools)
	s.reconfigure("addresses: podCIDR", "addresses: pools")
	s.acrossNodes()
	pool := netip.MustParsePrefix("10.97.0.0/16")
	for _, name := range []string{"on-0", "on-1"} {
		if a := s.addresses(s.ready(name))[0]; !pool.Contains(a) {
			t.Errorf("%s has %s, outside of %s", name, a, pool)
		}
	}
	// A block has eight addresses: more pods need further blocks of each node.
	const more = 40
	s.deploy("crowd")
	s.scale("crowd", more)
	pods := s.awaitReady(more + 2)
	seen := make(map[string]string)
	for i := range pods {
		for _, a := range s.addresses(&pods[i]) {
			if other := seen[a.String()]; other != "" {
				t.Errorf("%s and %s have the same address %s", pods[i].Name, other, a)
			}
			seen[a.String()] = pods[i].Name
		}
	}
	s.must(s.checkAddresses(t.Context()))
	s.scale("crowd", 0)
	s.deleteAll()
	s.mustLeaveNothing()
}
