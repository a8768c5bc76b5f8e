package agent

import (
	"slices"
	"testing"

	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/pod"
)

func TestOnlyEditsThatTakeEffectInANewPodAreReported(t *testing.T) {
	const custom = pod.AnnotationCustom
	selecting := []pod.Interface{{Name: "net1", Definition: "lab/blue"}}
	for name, tt := range map[string]struct {
		was, is    map[string]string
		interfaces []pod.Interface
		multus     bool
		want       []string
	}{
		"an interface is added":                 {map[string]string{custom: "t1/tap"}, map[string]string{custom: "t1/tap, t2/tap"}, nil, false, []string{custom}},
		"all interfaces are removed":            {map[string]string{custom: "t1/tap"}, map[string]string{}, nil, false, []string{custom}},
		"nothing is changed":                    {map[string]string{custom: "t1/tap"}, map[string]string{custom: "t1/tap"}, nil, false, nil},
		"a foreign annotation":                  {nil, map[string]string{"other.io/x": "y"}, nil, false, nil},
		"the interface for Services is set":     {nil, map[string]string{pod.AnnotationEndpoint: "t1"}, nil, false, nil},
		"the interface for Services is removed": {map[string]string{pod.AnnotationEndpoint: "t1"}, map[string]string{}, nil, false, nil},
		"a network is selected":                 {nil, map[string]string{pod.AnnotationNetworks: "blue"}, nil, false, []string{pod.AnnotationNetworks}},
		"another network is selected": {
			map[string]string{pod.AnnotationNetworks: "blue"}, map[string]string{pod.AnnotationNetworks: "red"}, selecting, false, []string{pod.AnnotationNetworks},
		},
		"Multus handles the selection":               {nil, map[string]string{pod.AnnotationNetworks: "blue"}, nil, true, nil},
		"an older agent did not store the selection": {nil, map[string]string{pod.AnnotationNetworks: "blue"}, selecting, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			a := &Agent{config: config.Config{Kubernetes: config.Kubernetes{Multus: tt.multus}}}
			got := a.edited(&pod.Attachment{Annotations: tt.was, Interfaces: tt.interfaces}, tt.is)
			if !slices.Equal(got, tt.want) {
				t.Errorf("reported are %v, want %v", got, tt.want)
			}
		})
	}
}
