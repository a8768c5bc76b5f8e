package main

import (
	"testing"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/weftnet/weft/test/node"
)

func TestOnlyLearnedNeighboursOfPodsAreIgnored(t *testing.T) {
	d := &demo{
		a: attachedPod{links: []node.Link{{Interface: &types100.Interface{Name: "blue0", Mac: "02:00:00:00:00:0a"}}}},
	}
	for line, learned := range map[string]bool{
		"+ neighbour b blue0 fe80::a at 02:00:00:00:00:0a learned":    true,
		"+ neighbour node weft0 fe80::a at 02:00:00:00:00:0a learned": false,
		"+ neighbour b blue0 fe80::c at 02:00:00:00:00:0c learned":    false,
		"+ neighbour b blue0 fe80::a at 02:00:00:00:00:0a permanent":  false,
		"- neighbour b blue0 fe80::a at 02:00:00:00:00:0a learned":    false,
		"+ link b blue0 tap up mtu 1500 mac 02:00:00:00:00:0a":        false,
	} {
		if got := d.isLearned(line); got != learned {
			t.Errorf("%q is learned: %v, want %v", line, got, learned)
		}
	}
}
