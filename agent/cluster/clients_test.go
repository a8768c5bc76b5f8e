package cluster

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/k8s/client"
	"github.com/weftnet/weft/k8s/k8stest"
	"github.com/weftnet/weft/k8s/policies"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/policy"
)

func nodeWith(name, block, address string) pod.Node {
	return pod.Node{
		Name: name, Addresses: []netip.Addr{netip.MustParseAddr(address)},
		Parts: []pod.NodePart{{Network: "red", Blocks: []netip.Prefix{netip.MustParsePrefix("100.116.0.0/24")}}, {Network: "default", Blocks: []netip.Prefix{netip.MustParsePrefix(block)}}},
	}
}

// A node uses a range of client addresses as long as these belong to one pod each. Otherwise log and condition say why.
func TestClientRangesAreUsedWhileTheirAddressesAreUnambiguous(t *testing.T) {
	c, err := client.New(k8stest.New(t).Connection())
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	f := NewFollower(FollowerConfig{Enforced: policies.New(policies.Config{Node: "n1", Client: c}), Log: slog.New(slog.NewTextHandler(&log, nil))})
	f.Config.Kubernetes.ServiceClientRanges = config.Prefixes{netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("fc00::/8")}
	self, both, onlyIPv6 := nodeWith("n1", "10.244.0.0/24", "192.0.2.1"), "[100.64.0.0/10 fc00::/8]", "[fc00::/8]"
	var now followed
	for _, tt := range []struct {
		what  string
		other pod.Node
		pools []pod.Pool
		want  string
	}{
		{"one range of pods", nodeWith("n2", "10.244.1.0/24", "192.0.2.2"), nil, both},
		{"a pool", nodeWith("n2", "10.244.1.0/24", "192.0.2.2"), []pod.Pool{{Name: "p", Prefix: netip.MustParsePrefix("10.244.0.0/16")}}, both},
		{"another pool with the same client addresses", nodeWith("n2", "10.244.1.0/24", "192.0.2.2"), []pod.Pool{{Name: "p", Prefix: netip.MustParsePrefix("172.52.0.0/16")}}, onlyIPv6},
		{"another node with the same client addresses", nodeWith("n2", "172.52.0.0/24", "192.0.2.2"), nil, onlyIPv6},
		{"a node that has a client address", nodeWith("n2", "10.244.1.0/24", "100.116.1.9"), nil, onlyIPv6},
		{"as at first", nodeWith("n2", "10.244.1.0/24", "192.0.2.2"), nil, both},
	} {
		now.pools = &pod.SetPools{Pools: tt.pools}
		for range 2 {
			if got := fmt.Sprint(f.clientRanges(self, []pod.Node{tt.other}, &now)); got != tt.want {
				t.Errorf("%s: ranges %s, want %s", tt.what, got, tt.want)
			}
		}
		if isWhole := len(f.Enforced.WithoutClients()) == 0; isWhole != (tt.want == both) {
			t.Errorf("%s: the policies are told %v", tt.what, f.Enforced.WithoutClients())
		}
	}
	if n := strings.Count(log.String(), "endpoints of Services see pods with the address of their node"); n != 3 {
		t.Errorf("%d lines in the log, want one for each reason: %s", n, log.String())
	}
	f.Enforced = nil
	if got := f.clientRanges(self, nil, &now); got != nil {
		t.Errorf("without policies: %v", got)
	}
}

func TestConditionSaysThatIngressPoliciesDoNotSeeClients(t *testing.T) {
	c, err := client.New(k8stest.New(t).Connection())
	if err != nil {
		t.Fatal(err)
	}
	e := &Enforcer{
		Policies: policies.New(policies.Config{Node: "n1", Client: c}), Attachments: func() []pod.Attachment { return nil },
		Health: health.New("", slog.New(slog.DiscardHandler)),
	}
	e.Health.Advise(health.Policies)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = e.Policies.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	e.Policies.SetClients(policy.ClientMap{}, []string{"100.64.0.0/10: a reason"})
	k8stest.Eventually(t, "the policies are known", e.Policies.Synced)
	for _, want := range []string{"ingress policies see the node instead of pods that contact Services; choose other kubernetes.serviceClientRanges: 100.64.0.0/10: a reason", ""} {
		e.report()
		if got := e.Health.Failure(health.Policies); got != want {
			t.Errorf("the condition is %q, want %q", got, want)
		}
		e.Policies.SetClients(policy.ClientMap{}, nil)
	}
}
