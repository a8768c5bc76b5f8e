package cluster

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/k8s/client"
	"github.com/weftnet/weft/k8s/k8stest"
	"github.com/weftnet/weft/k8s/policies"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/policy"
)

func nodeWith(name, block, address string) pod.Node {
	return pod.Node{
		Name: name, Addresses: []netip.Addr{netip.MustParseAddr(address)},
		Parts: []pod.NodePart{
			{Network: "red", Blocks: []netip.Prefix{netip.MustParsePrefix("100.116.0.0/24")}},
			{Network: "default", Blocks: []netip.Prefix{netip.MustParsePrefix(block)}},
		},
	}
}

// A node uses a range of client addresses as long as these belong to one pod each. Otherwise log and condition say why.
func TestClientRangesAreUsedWhileTheirAddressesAreUnambiguous(t *testing.T) {
	c, err := client.New(k8stest.New(t).Connection())
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	f := NewFollower(FollowerConfig{
		Enforced: policies.New(policies.Config{Node: "n1", Client: c}),
		Log:      slog.New(slog.NewTextHandler(&log, nil)),
	})
	f.Config.Kubernetes.ServiceClientRanges = config.Prefixes{
		netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("fc00::/8"),
	}
	self := nodeWith("n1", "10.244.0.0/24", "192.0.2.1")
	both := "[100.64.0.0/10 fc00::/8]"
	onlyIPv6 := "[fc00::/8]"
	var now followed
	for _, tt := range []struct {
		what  string
		other pod.Node
		pools []netaddr.Pool
		want  string
	}{
		{"one range of pods", nodeWith("n2", "10.244.1.0/24", "192.0.2.2"), nil, both},
		{
			"a pool", nodeWith("n2", "10.244.1.0/24", "192.0.2.2"),
			[]netaddr.Pool{{Name: "p", Prefix: netip.MustParsePrefix("10.244.0.0/16")}}, both,
		},
		{
			"another pool with the same client addresses", nodeWith("n2", "10.244.1.0/24", "192.0.2.2"),
			[]netaddr.Pool{{Name: "p", Prefix: netip.MustParsePrefix("172.52.0.0/16")}}, onlyIPv6,
		},
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
	if n := strings.Count(log.String(), "endpoints of Services see pods with the address of their node"); n != 1 {
		t.Errorf("%d lines in the log, want one for the reason: %s", n, log.String())
	}
	f.Enforced = nil
	if got := f.clientRanges(self, nil, &now); got != nil {
		t.Errorf("without policies: %v", got)
	}
}

func TestConditionNamesInvalidPartsOfPolicies(t *testing.T) {
	server := k8stest.New(t)
	server.Put("networkpolicies.networking.k8s.io", &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"},
		Spec: networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{
			{}, {From: []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: "10.0.0.0/33"}}}},
		}},
	})
	c, err := client.New(server.Connection())
	if err != nil {
		t.Fatal(err)
	}
	e := &Enforcer{
		Policies:    policies.New(policies.Config{Node: "n1", Client: c}),
		Attachments: func() []pod.Attachment { return nil },
		Health:      health.New("", slog.New(slog.DiscardHandler)),
	}
	watch(t, e)
	e.report()
	const want = `1 policies have invalid parts, which deny connections: NetworkPolicy shop/db: ingress[1]: ipBlock: "10.0.0.0/33" is not a CIDR`
	if got := e.Health.Failure(health.Policies); got != want {
		t.Errorf("the condition is %q, want %q", got, want)
	}
}

// A user writes a policy whose parts are all invalid, with long texts.
func TestConditionAboutInvalidPartsIsShort(t *testing.T) {
	server := k8stest.New(t)
	spec := networkingv1.NetworkPolicySpec{}
	for n := range 1000 {
		block := &networkingv1.IPBlock{CIDR: fmt.Sprint(n, strings.Repeat("x", 200))}
		spec.Ingress = append(spec.Ingress, networkingv1.NetworkPolicyIngressRule{
			From: []networkingv1.NetworkPolicyPeer{{IPBlock: block}},
		})
	}
	server.Put("networkpolicies.networking.k8s.io", &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"},
		Spec:       spec,
	})
	c, err := client.New(server.Connection())
	if err != nil {
		t.Fatal(err)
	}
	e := &Enforcer{
		Policies:    policies.New(policies.Config{Node: "n1", Client: c}),
		Attachments: func() []pod.Attachment { return nil },
		Health:      health.New("", slog.New(slog.DiscardHandler)),
	}
	watch(t, e)
	e.report()
	if got := e.Health.Failure(health.Policies); !strings.Contains(got, "NetworkPolicy shop/db: ingress[0]") ||
		len(got) > 1700 {
		t.Errorf("the condition has %d bytes: %q", len(got), got)
	}
}

func TestConditionSaysThatIngressPoliciesDoNotSeeClients(t *testing.T) {
	c, err := client.New(k8stest.New(t).Connection())
	if err != nil {
		t.Fatal(err)
	}
	e := &Enforcer{
		Policies:    policies.New(policies.Config{Node: "n1", Client: c}),
		Attachments: func() []pod.Attachment { return nil },
		Health:      health.New("", slog.New(slog.DiscardHandler)),
	}
	e.Health.Advise(health.Policies)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = e.Policies.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	e.Policies.SetClients(policy.ClientMap{}, []string{"100.64.0.0/10: a reason"})
	k8stest.Eventually(t, "the policies are known", e.Policies.Synced)
	for _, want := range []string{
		"ingress policies see the node instead of pods that contact Services; choose other kubernetes.serviceClientRanges: 100.64.0.0/10: a reason",
		"",
	} {
		e.report()
		if got := e.Health.Failure(health.Policies); got != want {
			t.Errorf("the condition is %q, want %q", got, want)
		}
		e.Policies.SetClients(policy.ClientMap{}, nil)
	}
}

// The lie of one node turns the client addresses of that node off, and of no other. If the node itself, or several
// others, are concerned, the range is wrong.
func TestNodeWithClientAddressesIsLeftOutAlone(t *testing.T) {
	ranges, err := policy.NewClientRanges([]netip.Prefix{
		netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("fc00::/8"),
	})
	if err != nil {
		t.Fatal(err)
	}
	const (
		both     = "[100.64.0.0/10 fc00::/8]"
		onlyIPv6 = "[fc00::/8]"
	)
	node := func(name string, id uint32, block, address string) pod.Node {
		n := nodeWith(name, block, address)
		n.ID = id
		n.ClientRanges = ranges.Prefixes()
		return n
	}
	self := node("n1", 1, "10.244.0.0/24", "192.0.2.1")
	honest := node("n2", 2, "10.244.1.0/24", "192.0.2.2")
	for _, tt := range []struct {
		what   string
		self   pod.Node
		others []pod.Node
		want   string
		apart  string // the node that is left out
	}{
		{"no conflict", self, []pod.Node{honest}, both, ""},
		{
			"an address of another node", self, []pod.Node{honest, node("liar", 3, "10.244.2.0/24", "100.116.1.9")},
			both, "liar",
		},
		{
			"an address of an older node", self, []pod.Node{honest, node("liar", 1, "10.244.2.0/24", "100.116.1.9")},
			both, "liar",
		},
		{
			"an address in the part of the node itself", self,
			[]pod.Node{honest, node("liar", 3, "10.244.2.0/24", "100.116.0.9")}, both, "liar",
		},
		{
			"addresses of two nodes", self,
			[]pod.Node{
				honest, node("a", 3, "10.244.2.0/24", "100.116.1.9"), node("b", 4, "10.244.3.0/24", "100.116.1.8"),
			},
			onlyIPv6, "",
		},
		{"an address of this node", node("n1", 1, "10.244.0.0/24", "100.116.1.9"), []pod.Node{honest}, onlyIPv6, ""},
		{
			"a block of a newer node", self, []pod.Node{node("liar", 3, "172.52.1.0/24", "192.0.2.3"), honest}, both,
			"liar",
		},
		{
			"blocks of two newer nodes", self,
			[]pod.Node{honest, node("a", 3, "172.52.1.0/24", "192.0.2.3"), node("b", 4, "172.52.0.0/24", "192.0.2.4")},
			onlyIPv6, "",
		},
		{
			"a block that is a client address", self,
			[]pod.Node{honest, node("liar", 3, "100.116.1.0/24", "192.0.2.3")}, both, "liar",
		},
	} {
		t.Run(tt.what, func(t *testing.T) {
			c := clients{self: tt.self, nodes: tt.others}
			why := c.resolve(ranges)
			if got := fmt.Sprint(c.now.Ranges().Prefixes()); got != tt.want {
				t.Errorf("ranges %s, want %s: %v", got, tt.want, why)
			}
			if (len(why) == 0) != (tt.want == both && tt.apart == "") {
				t.Errorf("reasons %q", why)
			}
			if tt.apart != "" && !strings.Contains(strings.Join(why, ""), "node "+tt.apart+" is left out") {
				t.Errorf("no reason names %s: %q", tt.apart, why)
			}
			for _, n := range c.partners(tt.others) {
				if hasRanges := len(n.ClientRanges) > 0; hasRanges != (n.Name != tt.apart) {
					t.Errorf("node %s has the ranges %v", n.Name, n.ClientRanges)
				}
			}
			if _, has := c.now.Of(netip.MustParseAddr("10.244.1.9")); has != (tt.want == both) {
				t.Errorf("a pod of the honest node has a client address: %t", has)
			}
		})
	}
}
