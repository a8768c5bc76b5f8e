package devicemanager

import (
	"fmt"
	"sync"
	"testing"

	"github.com/weftnet/weft/devicemanager/kubelettest"
	"github.com/weftnet/weft/pod"
)

// TestAHundredDevicesForFiftyPods of two containers: agent and kubelet restart in the middle, then all pods are deleted,
// and nothing is left on disk, among the desired values or in the state file.
func TestAHundredDevicesForFiftyPods(t *testing.T) {
	const pods = 50
	n := newNode(t)
	told := make(map[string]string) // secret by container
	var wired []*pod.Attachment
	for i := range pods {
		name := fmt.Sprintf("p%d", i)
		for _, c := range n.admit(t, podOf(name, 1, 1)) {
			told[name+"/"+c.Name] = c.Envs["MEMIF_SECRET"]
		}
		if i == pods/2 {
			if err := n.kubelet.Restart(); err != nil {
				t.Fatal(err)
			}
			n.kill(t, wired...)
			n.present(t)
		}
		wired = append(wired, n.mustAdd(t, name, name))
		for _, c := range []string{"c0", "c1"} {
			if err := n.kubelet.StartContainer(t.Context(), "shop", name, c); err != nil {
				t.Fatal(err)
			}
		}
	}
	if s := n.Stats(); s.Devices["granted"] != 2*pods || s.Devices["free"] != 0 {
		t.Errorf("stats %+v", s)
	}
	for i := range pods {
		name := fmt.Sprintf("p%d", i)
		grants, err := n.Devices(t.Context(), idOf(name))
		if err != nil || len(grants) != 2 {
			t.Fatalf("pod %s: %v, %v", name, grants, err)
		}
		for _, g := range grants {
			if told[name+"/"+g.Container] != string(g.Allocation.Secret) {
				t.Errorf("pod %s container %s has another secret than it was told", name, g.Container)
			}
		}
	}
	n.deleteAll(t, pods)
}

func (n *node) deleteAll(t *testing.T, pods int) {
	t.Helper()
	n.admit(t, kubelettest.Pod{Namespace: "kube-system", Name: "proxy"})
	for i := range pods {
		name := fmt.Sprintf("p%d", i)
		n.kubelet.Remove("shop", name)
		n.delete(t, name)
	}
	n.collect(t, newCollection(n.Manager).look, 3)
	if left := n.leftovers(t); len(left) != 0 || len(n.stateFile(t)) != 0 || len(n.Allocations()) != 0 {
		t.Errorf("left: %v, %v, %v", left, n.stateFile(t), n.Allocations())
	}
	if values := n.committer.Values(); len(values) != 0 {
		t.Errorf("%d values", len(values))
	}
}

// TestManyPodsAtOnce: kubelet admits one after the other, and runtimes add many at a time.
func TestManyPodsAtOnce(t *testing.T) {
	const pods = 20
	n := newNode(t)
	var calls sync.WaitGroup
	for i := range pods {
		calls.Go(func() {
			name := fmt.Sprintf("p%d", i)
			if _, err := n.kubelet.Admit(t.Context(), pod.Resource, podOf(name, 2, 1)); err != nil {
				t.Error(err)
			}
			if _, err := n.add(t.Context(), name, name); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	if s := n.Stats(); s.Devices["granted"] != 3*pods || s.Allocations != 2*pods {
		t.Errorf("stats %+v", s)
	}
	n.deleteAll(t, pods)
}
