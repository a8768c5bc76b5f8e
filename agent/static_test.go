package agent

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/blocks"
	"github.com/weftnet/weft/k8s/blocks/blockstest"
	"github.com/weftnet/weft/k8s/client"
	"github.com/weftnet/weft/k8s/k8stest"
	"github.com/weftnet/weft/test/node"
)

// secondNode simulates another node: it keeps its blocks and allocates their addresses.
func secondNode(t *testing.T, server *k8stest.Server, name string, pool blocks.PoolCIDR) *blockstest.Node {
	t.Helper()
	client, err := client.New(server.Connection())
	if err != nil {
		t.Fatal(err)
	}
	store := client.BlockStore()
	local := &blockstest.Node{Name: name, Judge: blockstest.NewJudge()}
	listed := func(own bool) (chosen []*v1.IPBlock, err error) {
		list, err := store.List(t.Context(), pool, true)
		for i := range list {
			if (string(list[i].Spec.Node) == name) == own {
				chosen = append(chosen, &list[i])
			}
		}
		return chosen, err
	}
	k, err := blocks.New(blocks.Config{
		Node: name, Owner: func() string { return "uid" }, Store: store, Local: local, Interval: 50 * time.Millisecond,
		Pools:   func() ([]blocks.PoolCIDR, bool) { return []blocks.PoolCIDR{pool}, true },
		Durable: blocks.Durable{Keep: func([]v1.IPBlock) error { return nil }},
		Watch: blockstest.Watch{
			Own: func() ([]*v1.IPBlock, bool) { list, err := listed(true); return list, err == nil },
			Foreign: func(name string) *v1.IPBlock {
				list, _ := listed(false)
				if at := slices.IndexFunc(list, func(b *v1.IPBlock) bool { return b.Name == name }); at >= 0 {
					return list[at]
				}
				return nil
			},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = k.Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return local
}

const (
	mainAddresses = "contivpp.io/ip-addresses"
	customOptions = "contivpp.io/custom-if-options"
)

func TestStaticAddressIsAllocatedFromTheBlockOfAnyNode(t *testing.T) {
	server := k8stest.New(t)
	server.Put("ippools.contivpp.io", &v1.IPPool{
		ObjectMeta: metav1.ObjectMeta{Name: "pods"},
		Spec:       v1.IPPoolSpec{CIDR: "10.9.0.0/24"},
	})
	theirs := func(name, cidr string, spec v1.IPBlockSpec) {
		spec.CIDR = v1.CIDR(cidr)
		spec.Node = "n2"
		server.Put("ipblocks.contivpp.io", &v1.IPBlock{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec})
	}
	theirs("10.9.0.64-26", "10.9.0.64/26", v1.IPBlockSpec{Pool: "pods"})
	theirs("blue.10.5.0.0-26", "10.5.0.0/26", v1.IPBlockSpec{Network: "blue"})
	secondNode(t, server, "n2", blocks.PoolCIDR{Name: "pods", Prefix: netip.MustParsePrefix("10.9.0.0/24"), Bits: 26})
	secondNode(t, server, "n2", blocks.PoolCIDR{
		Network:  "blue",
		Prefix:   netip.MustParsePrefix("10.5.0.0/24"),
		Bits:     26,
		OnDemand: true,
	})
	l := clusterLabWith(t, server, node.Options{ClusterPools: true})
	neighbour(server, "n2", 60001, "10.8.2.0/24")
	l.eventually("the agent has the cluster's objects", func() bool { return len(announced(server)) > 0 })

	// The addresses are in a free block of the pool, in n2's block of the pool, and in n2's block of the network.
	for name, address := range map[string]string{"a": "10.9.0.200", "b": "10.9.0.70"} {
		p := l.pod(name)
		extra := "10.5.0.7"
		if name == "b" {
			extra = "10.5.0.201"
		}
		l.put(server, p, map[string]string{
			mainAddresses: `["` + address + `"]`, customInterfaces: "b1/tap/blue",
			customOptions: `{"b1":{"ips":["` + extra + `"]}}`,
		})
		got := l.addresses(l.cni("ADD", p, nil))
		if want := []netip.Addr{netip.MustParseAddr(address), netip.MustParseAddr(extra)}; !slices.Equal(got, want) {
			t.Errorf("pod %s got %v, want %v", name, got, want)
		}
		defer l.cni("DEL", p, nil)
	}
	var b v1.IPBlock
	lent := []v1.Loan{{Address: "10.9.0.70", Node: node.Name, Namespace: "lab", Pod: "b"}}
	if !server.Object("ipblocks.contivpp.io", "", "10.9.0.64-26", &b) || b.Spec.Node != "n2" ||
		!slices.Equal(b.Spec.Borrowed, lent) {
		t.Errorf("loans of the block of n2: %+v, want %+v", b.Spec.Borrowed, lent)
	}
	l.eventually("the borrowed address is announced", func() bool {
		return slices.Contains(announced(server), "10.9.0.70/32")
	})
}

func TestErrorOfAStaticAddressInUseNamesPodAndNode(t *testing.T) {
	server := k8stest.New(t)
	server.Put("ippools.contivpp.io", &v1.IPPool{
		ObjectMeta: metav1.ObjectMeta{Name: "pods"},
		Spec:       v1.IPPoolSpec{CIDR: "10.9.0.0/24"},
	})
	server.Put("ipblocks.contivpp.io", &v1.IPBlock{
		ObjectMeta: metav1.ObjectMeta{Name: "10.9.0.64-26"},
		Spec:       v1.IPBlockSpec{CIDR: "10.9.0.64/26", Pool: "pods", Node: "n2"},
		Status: v1.IPBlockStatus{Allocations: []v1.Allocation{
			{Address: "10.9.0.70", Namespace: "shop", Pod: "cart-0", Attachment: "weft/c/eth0"}, {
				Address:    "10.9.0.71",
				Namespace:  "lab",
				Pod:        "a",
				Attachment: "weft/d/eth0",
			},
		}},
	})
	local := secondNode(t, server, "n2", blocks.PoolCIDR{
		Name:   "pods",
		Prefix: netip.MustParsePrefix("10.9.0.0/24"),
		Bits:   26,
	})
	l := clusterLabWith(t, server, node.Options{ClusterPools: true})
	l.eventually("n2 has its block", func() bool { return local.LeaseThis("", netip.MustParseAddr("10.9.0.70")) })
	local.LeaseThis("", netip.MustParseAddr("10.9.0.71"))
	l.eventually("the agent has the cluster's objects", func() bool { return len(announced(server)) > 0 })
	p := l.pod("a")
	for address, want := range map[string][]string{
		"10.9.0.70": {
			`"code": 101`,
			"address 10.9.0.70 is held by pod shop/cart-0 on node n2; request another address of pool pods, or none",
		},
		"10.9.0.71": {
			`"code": 11`, "address 10.9.0.71 is held by pod lab/a on node n2, which has not released it yet; try again",
		},
		"10.9.0.0": {
			`"code": 102`,
			"address 10.9.0.0 of pool pods is reserved; request another one of 10.9.0.0/24 (pool pods), or none",
		},
		"10.7.0.5": {
			`"code": 102`,
			"address 10.7.0.5 is in no pool; request another one of 10.9.0.0/24 (pool pods), or none",
		},
	} {
		l.put(server, p, map[string]string{mainAddresses: `["` + address + `"]`})
		output := l.fails(p)
		for _, part := range want {
			if !strings.Contains(output, part) {
				t.Errorf("%s: error %s, want %q", address, output, part)
			}
		}
		l.cni("DEL", p, nil)
	}
}

func TestPodsReachEachOtherWithStaticAddressesOnAnL2NetworkWithoutCIDRs(t *testing.T) {
	server := k8stest.New(t)
	server.Put("customnetworks.contivpp.io", &v1.CustomNetwork{
		ObjectMeta: metav1.ObjectMeta{Name: "bare"},
		Spec:       v1.CustomNetworkSpec{Type: v1.L2},
	})
	l := clusterLabWith(t, server, node.Options{})
	var own v1.NodeNetwork
	l.eventually("the agent has both networks", func() bool {
		return server.Object("nodenetworks.contivpp.io", "", node.Name, &own) && len(own.Status.Networks) == 2
	})
	pods := make(map[string]*node.Pod)
	for name, address := range map[string]string{"a": "192.168.5.9/24", "b": "192.168.5.10/24"} {
		p := l.pod(name)
		pods[name] = p
		l.put(server, p, map[string]string{
			customInterfaces: "b1/tap/bare",
			customOptions:    `{"b1":{"ips":["` + address + `"]}}`,
		})
		result := l.cni("ADD", p, nil)
		if !strings.Contains(string(result), address) {
			t.Errorf("the result of %s lacks %s: %s", name, address, result)
		}
		l.check(p, result)
		defer l.cni("DEL", p, nil)
	}
	l.mustReach(pods["a"], netip.MustParseAddr("192.168.5.10"))
	l.mustReach(pods["b"], netip.MustParseAddr("192.168.5.9"))
	c := l.pod("c")
	l.put(server, c, map[string]string{
		customInterfaces: "b1/tap/bare",
		customOptions:    `{"b1":{"ips":["192.168.5.9/24"]}}`,
	})
	if output := l.fails(c); !strings.Contains(output, `"code": 101`) ||
		!strings.Contains(output, "address 192.168.5.9 is held by pod lab/a on this node") {
		t.Errorf("error of a second pod with the address: %s", output)
	}
	l.restartAfter(func(string) error { return nil })
	if operations := l.resyncs(); len(operations) > 0 {
		t.Errorf("operations of the new agent's resync: %v", operations)
	}
}
