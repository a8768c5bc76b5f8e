package memif_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/weftnet/weft/devicemanager/kubelettest"
	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/test/node"
)

// deviceMissing is the error code of an ADD that lacks a device.
const deviceMissing = 104

// The failed ADD leaves nothing; with more devices than needed an ADD succeeds.
func TestADDWithoutEnoughDevicesNamesTheMissingDevices(t *testing.T) {
	l := newLab(t, node.Options{})
	tests := []struct {
		name, custom, options string
		limits                map[string]int
		why                   string // "" = it succeeds
	}{
		{"annotation without a resource", "m1/memif", "", map[string]int{"vnf": 0},
			"interface m1: the pod's containers have 0 of contivpp.io/memif and annotation contivpp.io/custom-if asks for 1"},
		{"too few", "m1/memif,m2/memif,t1/tap", "", map[string]int{"vnf": 1},
			"interface m2: the pod's containers have 1 of contivpp.io/memif and annotation contivpp.io/custom-if asks for 2"},
		{
			"too few in the container", "m1/memif,m2/memif", `{"m1":{"container":"vnf"},"m2":{"container":"vnf"}}`,
			map[string]int{"vnf": 1, "zwo": 1},
			"interface m2: container vnf has 1 of contivpp.io/memif and annotation contivpp.io/custom-if asks for 2",
		},
		{"none in the container", "m1/memif", `{"m1":{"container":"log"}}`, map[string]int{"log": 0, "vnf": 1},
			"container log has no contivpp.io/memif in its limits; these have: vnf"},
		{"more than enough", "m1/memif", "", map[string]int{"vnf": 2}, ""},
		{"resource without an annotation", "", "", map[string]int{"vnf": 1}, ""},
		{
			"the container that is named", "m1/memif", `{"m1":{"container":"zwo"}}`, map[string]int{"vnf": 1, "zwo": 1},
			"",
		},
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := &lab{t, l.Node, l.runtime}
			var containers []kubelettest.Container
			for _, name := range []string{"log", "vnf", "zwo"} {
				if limit, ok := tt.limits[name]; ok {
					containers = append(containers, kubelettest.Container{Name: name, Limit: limit})
				}
			}
			p, containers := l.admit("p"+string(rune('a'+i)), tt.custom, tt.options, containers...)
			defer l.Forget(p)
			if tt.why != "" {
				l.refused(p, tt.why)
			} else {
				l.add(p)
				l.inLast(p, containers, tt.custom != "")
			}
			l.del(p)
			if left := l.served(); len(left) > 0 {
				t.Errorf("the dataplane has %q", left)
			}
		})
	}
}

// refused expects an ADD to fail because a device is missing, and to leave nothing.
func (l *lab) refused(p *node.Pod, why string) {
	l.Helper()
	_, err := l.runtime.Add(l.Context(), p)
	output, ok := errors.AsType[*types.Error](err)
	if !ok || output.Code != deviceMissing || !strings.Contains(output.Error(), why) ||
		!strings.Contains(output.Error(), "pod demo/"+p.Name) {
		l.Errorf("error %v, want code %d and %q", err, deviceMissing, why)
	}
	out, err := l.Weftctl(l.Context(), "attachments")
	l.try(err)
	if strings.Contains(out, "demo/"+p.Name) {
		l.Errorf("the attachment exists: %s", out)
	}
}

// inLast expects m1 in the last container with a device, or in none.
func (l *lab) inLast(p *node.Pod, containers []kubelettest.Container, there bool) {
	l.Helper()
	for i, c := range containers {
		text, err := os.ReadFile(inDirectory(c, memif.DescriptionFile))
		if has := err == nil && strings.Contains(string(text), `"m1"`); has != (there && i == len(containers)-1) {
			l.Errorf("container %s of %s: interfaces.json is %s (%v)", c.Name, p.Name, text, err)
		}
	}
}

// An ADD after kubelet is back succeeds.
func TestADDReturnsTryAgainWhileKubeletDoesNotAnswer(t *testing.T) {
	g := newGranted(t, nil)
	g.try(g.Kubelet.Stop())
	_, err := g.runtime.Add(t.Context(), g.pod)
	if output, ok := errors.AsType[*types.Error](err); !ok || output.Code != types.ErrTryAgainLater ||
		!strings.Contains(output.Error(), "is kubelet running?") {
		t.Errorf("error %v, want code %d and a question about kubelet", err, types.ErrTryAgainLater)
	}
	g.try(g.Kubelet.Start())
	g.registered()
	g.addAndCheck(g.pod)
}
