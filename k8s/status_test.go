package k8s_test

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/k8s"
	v1 "github.com/weftnet/weft/k8s/api/v1"
)

func aged(name string, hours int) metav1.ObjectMeta {
	at := metav1.NewTime(time.Unix(1_700_000_000, 0).Add(-time.Duration(hours) * time.Hour))
	return metav1.ObjectMeta{Name: name, CreationTimestamp: at, Generation: 2}
}

func TestVNIsAreGivenOnceAndToOneNetworkEach(t *testing.T) {
	networks := []*v1.CustomNetwork{
		{ObjectMeta: aged("new", 1)}, {ObjectMeta: aged("old", 9)},
		{ObjectMeta: aged("asks", 5), Spec: v1.CustomNetworkSpec{VNI: ptr(int32(1 << 20))}},
		{ObjectMeta: aged("has", 7), Status: v1.CustomNetworkStatus{VNI: 1<<20 + 1}},
	}
	given := k8s.GiveVNIs(networks)
	if want := "map[asks:1048576 new:1048579 old:1048578]"; fmt.Sprint(given) != want {
		t.Errorf("given %v, want %s", given, want)
	}
}

func TestANetworkIsReadyWhenAllNodesHaveIt(t *testing.T) {
	n := &v1.CustomNetwork{ObjectMeta: aged("blue", 1)}
	has := v1.NodeNetworkStatus{Networks: []v1.Observed{{Name: "blue", Generation: 2}}}
	behind := v1.NodeNetworkStatus{Networks: []v1.Observed{{Name: "blue", Generation: 1}}}
	refuses := v1.NodeNetworkStatus{Refused: []v1.Refusal{{Name: "blue", Reason: "pods have addresses of the old cidrs"}}}
	for _, tt := range []struct {
		name           string
		nodes          []v1.NodeNetworkStatus
		status, reason string
		ready          int32
	}{
		{"all have it", []v1.NodeNetworkStatus{has, has}, "True", v1.ReasonInUse, 2},
		{"one is behind", []v1.NodeNetworkStatus{behind, has}, "False", v1.ReasonPending, 1},
		{"a refusal says more than a delay", []v1.NodeNetworkStatus{behind, refuses, {}}, "False", v1.ReasonRefused, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var nodes []*v1.NodeNetwork
			for i, s := range tt.nodes {
				nodes = append(nodes, &v1.NodeNetwork{ObjectMeta: named(fmt.Sprintf("n%d", i+1)), Status: s})
			}
			got := k8s.NetworkStatus(n, nodes)
			c := got.Conditions[0]
			if string(c.Status) != tt.status || c.Reason != tt.reason || got.ReadyNodes != tt.ready || got.ObservedGeneration != 2 {
				t.Errorf("status %+v", got)
			}
			if tt.reason == v1.ReasonRefused && c.Message != "node n2: pods have addresses of the old cidrs" {
				t.Errorf("message %q", c.Message)
			}
		})
	}
}

func TestTheStatusOfAPool(t *testing.T) {
	p := &v1.IPPool{ObjectMeta: aged("pods", 1), Spec: v1.IPPoolSpec{CIDR: "10.1.0.0/25"}}
	older := &v1.IPPool{ObjectMeta: aged("older", 5), Spec: v1.IPPoolSpec{CIDR: "10.1.0.0/16"}}
	block := func(cidr string) *v1.IPBlock {
		return &v1.IPBlock{Spec: v1.IPBlockSpec{CIDR: v1.CIDR(cidr), Pool: "pods", Node: "n1"}, Status: v1.IPBlockStatus{Used: 3}}
	}
	for _, tt := range []struct {
		name    string
		pools   []*v1.IPPool
		blocks  []*v1.IPBlock
		reason  string
		claimed int64
	}{
		{"blocks are left", []*v1.IPPool{p}, []*v1.IPBlock{block("10.1.0.0/26")}, v1.ReasonInUse, 1},
		{"no block is left", []*v1.IPPool{p}, []*v1.IPBlock{block("10.1.0.0/26"), block("10.1.0.64/26")}, v1.ReasonNoBlocks, 2},
		{"an older pool has the addresses", []*v1.IPPool{p, older}, nil, v1.ReasonOverlap, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := k8s.PoolStatus(p, tt.pools, tt.blocks)
			if got.Blocks != 2 || got.ClaimedBlocks != tt.claimed || got.UsedAddresses != 3*tt.claimed || got.Conditions[0].Reason != tt.reason {
				t.Errorf("status %+v", got)
			}
		})
	}
}
