package agent

import (
	"testing"
	"testing/fstest"
)

func TestNUMANodeOfMemifs(t *testing.T) {
	machine := func(online string) fstest.MapFS {
		return fstest.MapFS{"sys/devices/system/node/online": {Data: []byte(online)}}
	}
	for name, tt := range map[string]struct {
		machine    fstest.MapFS
		configured int
		want       int // -1: none
	}{
		"the only one":           {machine("0\n"), -1, 0},
		"one of several":         {machine("0-1\n"), -1, -1},
		"one of a list":          {machine("0,2\n"), -1, -1},
		"a kernel without NUMA":  {fstest.MapFS{}, -1, -1},
		"the configured one":     {machine("0-1\n"), 1, 1},
		"the configured first":   {machine("0-1\n"), 0, 0},
		"configured, no machine": {fstest.MapFS{}, 1, 1},
	} {
		got := -1
		if node := numaNode(tt.machine, tt.configured); node != nil {
			got = *node
		}
		if got != tt.want {
			t.Errorf("%s: node %d, want %d", name, got, tt.want)
		}
	}
}
