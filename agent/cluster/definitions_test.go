package cluster

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weftnet/weft/k8s/nodeview"
)

func TestNetworksOfDefinitionsFollowTheirConfigurations(t *testing.T) {
	const plugin = `{"cniVersion": "1.0.0", "name": "n", "type": "weft-cni", "mode": "delegate"`
	var d definitions
	for _, step := range []struct {
		configs map[string]string
		want    map[string]string
	}{
		{
			map[string]string{
				"a/red":   plugin + `, "network": "red"}`,
				"a/own":   plugin + "}",
				"a/other": `{"type": "macvlan"}`,
				"a/none":  "",
			},
			map[string]string{"a/red": "red", "a/own": "default"},
		},
		{
			map[string]string{"a/red": plugin + `, "network": "blue"}`, "a/own": plugin + "}"},
			map[string]string{"a/red": "blue", "a/own": "default"},
		},
		{map[string]string{"a/red": `{"type": "macvlan"}`}, map[string]string{}},
		{nil, map[string]string{}},
	} {
		now := make(map[string]nodeview.Definition)
		for name, config := range step.configs {
			now[name] = nodeview.Definition{Config: config}
		}
		if diff := cmp.Diff(step.want, d.update(now)); diff != "" {
			t.Error(diff)
		}
	}
}
