package controller

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/weftnet/weft/k8s/api/v1"
)

func aged(name string, hours int) metav1.ObjectMeta {
	at := metav1.NewTime(time.Unix(1_700_000_000, 0).Add(-time.Duration(hours) * time.Hour))
	return metav1.ObjectMeta{Name: name, CreationTimestamp: at, Generation: 2}
}

func TestVNIsAreUnique(t *testing.T) {
	with := func(m metav1.ObjectMeta) metav1.ObjectMeta {
		m.UID = types.UID(m.Name)
		return m
	}
	networks := []*v1.CustomNetwork{
		{ObjectMeta: with(aged("new", 1))}, {ObjectMeta: with(aged("old", 9))}, {ObjectMeta: with(aged("given", 2))},
		{ObjectMeta: with(aged("asks", 5)), Spec: v1.CustomNetworkSpec{VNI: new(int32(1 << 20))}},
		{ObjectMeta: with(aged("has", 7)), Status: v1.CustomNetworkStatus{VNI: 1<<20 + 1}},
		{
			ObjectMeta: with(aged("asked", 6)),
			Spec:       v1.CustomNetworkSpec{VNI: new(int32(7))},
			Status:     v1.CustomNetworkStatus{VNI: 1<<20 + 2},
		},
	}
	for _, tt := range []struct {
		name  string
		given vnis
		want  string
	}{
		{"no previous assignments", nil, "map[1048577:has 1048579:old 1048580:given 1048581:new]"},
		{"previous assignments stay", vnis{1048580: "given"}, "map[1048577:has 1048579:old 1048580:given 1048581:new]"},
		{
			"the VNI of a deleted network is free in the next call", vnis{1048579: "gone"},
			"map[1048577:has 1048580:old 1048581:given 1048582:new]",
		},
		{
			"the VNI of a status is assigned to another network", vnis{1048577: "old"},
			"map[1048577:old 1048579:has 1048580:given 1048581:new]",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := fmt.Sprint(assignVNIs(tt.given, networks)); got != tt.want {
				t.Errorf("given %s, want %s", got, tt.want)
			}
		})
	}
}

func TestANetworkIsUnusedWhenEachNodeReportsIt(t *testing.T) {
	n := &v1.CustomNetwork{ObjectMeta: aged("blue", 1)}
	ready := v1.Conditions{{Type: v1.ConditionReady, Status: metav1.ConditionTrue}}
	saying := func(generation int64, pods ...string) v1.NodeNetworkStatus {
		return v1.NodeNetworkStatus{
			Version:  "v1",
			Networks: []v1.Observed{{Name: "blue", Generation: generation, Closed: true, Pods: pods}},
		}
	}
	open := saying(2)
	open.Networks[0].Closed = false
	for _, tt := range []struct {
		name string
		node v1.NodeNetworkStatus
		want string
	}{
		{"closed without pods", saying(2), ""},
		{"closed with a pod", saying(2, "shop/a"), "it is used by shop/a on n1"},
		{
			"closed with many pods", saying(3, "s/1", "s/2", "s/3", "s/4", "s/5", "s/6"),
			"it is used by s/1 on n1, s/2 on n1, s/3 on n1, s/4 on n1, s/5 on n1 and 1 more",
		},
		{"an agent that does not report closed networks", open, "waiting for nodes to report their pods: n1"},
		{"reports an older generation", saying(1), "waiting for nodes to report their pods: n1"},
		{"has just joined", v1.NodeNetworkStatus{}, "waiting for nodes to report their pods: n1"},
		{
			"ready and without the network", v1.NodeNetworkStatus{Version: "v1", Conditions: ready},
			"waiting for nodes to report their pods: n1",
		},
		{
			"refused the network", v1.NodeNetworkStatus{Version: "v1", Refused: []v1.Refusal{{Name: "blue"}}},
			"waiting for nodes to report their pods: n1",
		},
		{"not ready and without the network", v1.NodeNetworkStatus{Version: "v1"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			usage := usageOf(n, []*v1.NodeNetwork{{ObjectMeta: named("n1"), Status: tt.node}})
			if usage != tt.want {
				t.Errorf("%q", usage)
			}
		})
	}
}

func TestANetworkIsReadyWhenAllNodesHaveIt(t *testing.T) {
	n := &v1.CustomNetwork{ObjectMeta: aged("blue", 1)}
	has := v1.NodeNetworkStatus{Networks: []v1.Observed{{Name: "blue", Generation: 2}}}
	behind := v1.NodeNetworkStatus{Networks: []v1.Observed{{Name: "blue", Generation: 1}}}
	refuses := v1.NodeNetworkStatus{
		Refused: []v1.Refusal{{Name: "blue", Reason: "pods have addresses of the old cidrs"}},
	}
	for _, tt := range []struct {
		name           string
		nodes          []v1.NodeNetworkStatus
		status, reason string
		ready          int32
	}{
		{"all nodes have it", []v1.NodeNetworkStatus{has, has}, "True", v1.ReasonInUse, 2},
		{"no announcements", nil, "Unknown", v1.ReasonPending, 0},
		{"one node has an older generation", []v1.NodeNetworkStatus{behind, has}, "False", v1.ReasonPending, 1},
		{
			"a refusal has precedence over a delay", []v1.NodeNetworkStatus{behind, refuses, {}}, "False",
			v1.ReasonRefused, 0,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var nodes []*v1.NodeNetwork
			for i, s := range tt.nodes {
				nodes = append(nodes, &v1.NodeNetwork{ObjectMeta: named(fmt.Sprintf("n%d", i+1)), Status: s})
			}
			got := networkStatus(n, nil, nodes)
			c := got.Conditions[0]
			if string(c.Status) != tt.status || c.Reason != tt.reason || got.ReadyNodes != tt.ready ||
				got.ObservedGeneration != 2 {
				t.Errorf("status %+v", got)
			}
			if tt.reason == v1.ReasonRefused && c.Message != "node n2: pods have addresses of the old cidrs" {
				t.Errorf("message %q", c.Message)
			}
		})
	}
}

func TestOfTwoNetworksWithOneVNITheYoungerHasAConflict(t *testing.T) {
	older := &v1.CustomNetwork{ObjectMeta: aged("older", 5), Status: v1.CustomNetworkStatus{VNI: 1 << 20}}
	asks := &v1.CustomNetwork{ObjectMeta: aged("asks", 1), Spec: v1.CustomNetworkSpec{VNI: new(int32(1 << 20))}}
	all := []*v1.CustomNetwork{asks, older}
	got := networkStatus(asks, all, nil)
	conflict := meta.FindStatusCondition(got.Conditions, v1.ConditionConflict)
	if conflict.Status != "True" || conflict.Message != "VNI 1048576 belongs to the older network older" ||
		got.VNI != 1<<20 {
		t.Errorf("status %+v", got)
	}
	if !meta.IsStatusConditionFalse(got.Conditions, v1.ConditionReady) {
		t.Errorf("ready though it has a conflict: %+v", got.Conditions)
	}
	if got := networkStatus(older, all, nil); !meta.IsStatusConditionFalse(got.Conditions, v1.ConditionConflict) {
		t.Errorf("the older one has %+v", got.Conditions)
	}
}

func TestAnExternalInterfaceIsReadyWhenItsNodesHaveIt(t *testing.T) {
	e := &v1.ExternalInterface{
		ObjectMeta: aged("out", 1),
		Spec:       v1.ExternalInterfaceSpec{Nodes: []v1.ExternalNode{{Node: "n1"}, {Node: "n2"}}},
	}
	said := func(generation int64, reason string) v1.NodeNetworkStatus {
		return v1.NodeNetworkStatus{
			Externals: []v1.ObservedExternal{
				{Name: "other", Generation: 2, Reason: "no"}, {Name: "out", Generation: generation, Reason: reason},
			},
		}
	}
	for _, tt := range []struct {
		name                    string
		nodes                   []v1.NodeNetworkStatus
		status, reason, message string
	}{
		{
			"all nodes have it", []v1.NodeNetworkStatus{said(2, ""), said(2, "")}, "True", v1.ReasonInUse,
			"all nodes of the list have the interface",
		},
		{
			"other nodes are ignored", []v1.NodeNetworkStatus{said(2, ""), said(2, ""), said(2, "no such link")},
			"True", v1.ReasonInUse, "all nodes of the list have the interface",
		},
		{
			"one node has not reported", []v1.NodeNetworkStatus{said(2, "")}, "False", v1.ReasonPending,
			"node n2: it has not reported generation 2 yet",
		},
		{
			"one node has an older generation", []v1.NodeNetworkStatus{said(1, ""), said(2, "")}, "False",
			v1.ReasonPending, "node n1: it has not reported generation 2 yet",
		},
		{
			"a refusal has precedence over a delay", []v1.NodeNetworkStatus{said(1, ""), said(2, "no such link")},
			"False", v1.ReasonRefused, "node n2: no such link",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var nodes []*v1.NodeNetwork
			for i, s := range tt.nodes {
				nodes = append(nodes, &v1.NodeNetwork{ObjectMeta: named(fmt.Sprintf("n%d", i+1)), Status: s})
			}
			got := externalStatus(e, nodes)
			if c := got.Conditions[0]; string(c.Status) != tt.status || c.Reason != tt.reason ||
				c.Message != tt.message || got.ObservedGeneration != 2 {
				t.Errorf("status %+v", got)
			}
		})
	}
}

func TestTheStatusOfAPool(t *testing.T) {
	p := &v1.IPPool{ObjectMeta: aged("pods", 1), Spec: v1.IPPoolSpec{CIDR: "10.1.0.0/25"}}
	older := &v1.IPPool{ObjectMeta: aged("older", 5), Spec: v1.IPPoolSpec{CIDR: "10.1.0.0/16"}}
	off := p.DeepCopy()
	off.Spec.Disabled = true
	block := func(cidr string) *v1.IPBlock {
		return &v1.IPBlock{
			Spec:   v1.IPBlockSpec{CIDR: v1.CIDR(cidr), Pool: "pods", Node: "n1"},
			Status: v1.IPBlockStatus{Used: 3},
		}
	}
	for _, tt := range []struct {
		name    string
		pools   []*v1.IPPool
		blocks  []*v1.IPBlock
		reason  string
		claimed int64
	}{
		{"free blocks", []*v1.IPPool{p}, []*v1.IPBlock{block("10.1.0.0/26")}, v1.ReasonInUse, 1},
		{
			"no free block", []*v1.IPPool{p}, []*v1.IPBlock{block("10.1.0.0/26"), block("10.1.0.64/26")},
			v1.ReasonNoBlocks, 2,
		},
		{"disabled", []*v1.IPPool{off}, nil, v1.ReasonDisabled, 0},
		{"overlaps an older pool", []*v1.IPPool{p, older}, nil, v1.ReasonOverlap, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := poolStatus(tt.pools[0], tt.pools, tt.blocks)
			if meta.IsStatusConditionTrue(got.Conditions, v1.ConditionConflict) != (tt.reason == v1.ReasonOverlap) {
				t.Errorf("conditions %+v", got.Conditions)
			}
			if got.Blocks != 2 || got.ClaimedBlocks != tt.claimed || got.UsedAddresses != 3*tt.claimed ||
				got.Conditions[0].Reason != tt.reason {
				t.Errorf("status %+v", got)
			}
		})
	}
}

// API servers refuse it by a rule of the definition, which an older one lacks.
func TestAPoolThatIsSmallerThanABlockIsInvalid(t *testing.T) {
	for _, cidr := range []v1.CIDR{"10.1.0.0/28", "fd00:1::/124", "10.1.0.7/16", "x"} {
		p := &v1.IPPool{ObjectMeta: aged("pods", 1), Spec: v1.IPPoolSpec{CIDR: cidr}}
		if got := poolStatus(p, []*v1.IPPool{p}, nil); got.Blocks != 0 || got.Conditions[0].Reason != v1.ReasonInvalid {
			t.Errorf("%s: status %+v", cidr, got)
		}
	}
}

func TestAllNodesOfAnExternalInterfaceAreListed(t *testing.T) {
	e := &v1.ExternalInterface{Spec: v1.ExternalInterfaceSpec{Nodes: []v1.ExternalNode{{Node: "n1"}, {Node: "n2"}}}}
	if got := externalStatus(e, nil).Nodes; got != "n1, n2" {
		t.Errorf("nodes %q", got)
	}
}
