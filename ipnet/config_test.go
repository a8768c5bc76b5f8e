package ipnet_test

import (
	"strings"
	"testing"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet"
	"github.com/weftnet/weft/ipnet/attach"
	"github.com/weftnet/weft/ipnet/mesh"
	"github.com/weftnet/weft/ipnet/networks"
)

func TestInvalidConfigurationsAreRefused(t *testing.T) {
	tests := []struct {
		name   string
		config ipnet.Config
		want   string // part of the error; "" = accepted
	}{
		{"pools are enough", ipnet.Config{Networks: networks.Config{Pools: []netaddr.Pool{four}}}, ""},
		{"no pool", ipnet.Config{}, "at least one pool"},
		{
			"pools that overlap",
			ipnet.Config{Networks: networks.Config{Pools: []netaddr.Pool{four, {Name: "b", Prefix: four.Prefix}}}},
			"overlap",
		},
		{"an MTU for IPv4 only", ipnet.Config{Networks: networks.Config{Pools: []netaddr.Pool{four}, MTU: 1000}}, ""},
		{
			"an MTU below IPv6's minimum",
			ipnet.Config{Networks: networks.Config{Pools: []netaddr.Pool{six}, MTU: 1000}},
			"MTU 1000 is not within 1280 to 9600",
		},
		{
			"an MTU above the maximum",
			ipnet.Config{Networks: networks.Config{Pools: []netaddr.Pool{four}, MTU: 70000}},
			"MTU 70000",
		},
		{
			"a host link too long for Linux",
			ipnet.Config{
				Networks: networks.Config{Pools: []netaddr.Pool{four}},
				Mesh:     mesh.Config{HostLink: "sixteen-letters!"},
			},
			"host link",
		},
		{
			"a host link with a slash",
			ipnet.Config{Networks: networks.Config{Pools: []netaddr.Pool{four}}, Mesh: mesh.Config{HostLink: "a/b"}},
			"host link",
		},
		{
			"a main interface of another type",
			ipnet.Config{
				Networks: networks.Config{Pools: []netaddr.Pool{four}},
				Mesh:     mesh.Config{LinkTypes: mesh.LinkTypes{Pod: "memif"}},
			},
			`pod interface "memif" is neither tap nor veth`,
		},
		{
			"more queues than a pod may have",
			ipnet.Config{Networks: networks.Config{Pools: []netaddr.Pool{four}}, Pods: attach.Config{PodQueues: 5}},
			"5 pairs of queues, at most 4",
		},
		{
			"more queues than the maximum",
			ipnet.Config{Networks: networks.Config{Pools: []netaddr.Pool{four}}, Pods: attach.Config{MaxPodQueues: 17}},
			"at most 17: they are within 1 and 16",
		},
		{
			"the maximum of queues",
			ipnet.Config{
				Networks: networks.Config{Pools: []netaddr.Pool{four}},
				Pods:     attach.Config{PodQueues: 16, MaxPodQueues: 16},
			},
			"",
		},
		{
			"a pool with the name of a network's",
			ipnet.Config{Networks: networks.Config{Pools: []netaddr.Pool{{Name: "a:ip4", Prefix: four.Prefix}}}},
			"a name without colons",
		},
		{
			"an unknown pool of a namespace",
			ipnet.Config{
				Networks: networks.Config{
					Pools:          []netaddr.Pool{four},
					NamespacePools: map[string][]string{"lab": {"x"}},
				},
			},
			`namespace lab: there is no pool "x"`,
		},
		{
			"an unknown pool of the node",
			ipnet.Config{Networks: networks.Config{Pools: []netaddr.Pool{four}, NodePools: []string{"x"}}},
			`node: there is no pool "x"`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ipnet.New(tt.config)
			if tt.want == "" && err != nil {
				t.Errorf("refused: %v", err)
			}
			if tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}
