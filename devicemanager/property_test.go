package devicemanager

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weftnet/weft/devicemanager/kubelettest"
	"github.com/weftnet/weft/internal/secret"
	"github.com/weftnet/weft/pod"
)

// model is what should be true of a node: what each pod's containers got, and which sandboxes are wired.
type model struct {
	*node
	got     map[string][]kubelettest.Container // by pod, as kubelet was answered
	wired   map[string]*pod.Attachment         // by sandbox
	secrets map[secret.Text]string             // allocation by secret, ever
	look    *collection
	steps   int
}

// TestNoDeviceSocketOrSecretIsEverTwoAllocations does anything that can happen to a node, in any order: what a pod's
// containers were told stays true as long as the pod is there, and after all pods nothing is left.
func TestNoDeviceSocketOrSecretIsEverTwoAllocations(t *testing.T) {
	n := newNode(t, func(n *node) { n.config.Count = 6 })
	n.admit(t, kubelettest.Pod{Namespace: "kube-system", Name: "proxy"})
	rapid.Check(t, func(rt *rapid.T) {
		m := &model{
			node: n, got: make(map[string][]kubelettest.Container), wired: make(map[string]*pod.Attachment),
			secrets: make(map[secret.Text]string), look: newCollection(n.Manager),
		}
		steps := rapid.IntRange(1, 25).Draw(rt, "steps")
		for range steps {
			m.step(t, rt)
			m.check(t, rt)
		}
		for name := range m.got {
			n.kubelet.Remove("shop", name)
		}
		for sandbox := range m.wired {
			n.delete(t, sandbox)
		}
		n.collect(t, m.look.look, 2*len(n.Allocations())+1) // those of one pod wait for each other
		if left := n.leftovers(t); len(left) != 0 || len(n.Allocations()) != 0 || len(n.stateFile(t)) != 0 {
			rt.Fatalf("left: %v, %v, %v", left, n.Allocations(), n.stateFile(t))
		}
	})
}

func (m *model) step(t *testing.T, rt *rapid.T) {
	m.steps++
	name := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(rt, "pod")
	switch what := rapid.SampledFrom([]string{
		"admit", "admit", "admit", "remove", "add", "add", "delete", "collect", "kill", "kill without state", "kubelet restarts", "much later",
	}).Draw(rt, "what"); what {
	case "admit":
		limits := rapid.SliceOfN(rapid.IntRange(0, 2), 1, 3).Draw(rt, "limits")
		got, err := m.kubelet.Admit(t.Context(), pod.Resource, podOf(name, limits...))
		switch {
		case err == nil:
			m.got[name] = got
		case !strings.Contains(err.Error(), "number of devices unavailable"):
			rt.Fatal(err)
		}
	case "remove":
		m.kubelet.Remove("shop", name)
		delete(m.got, name)
	case "add":
		m.add(t, rt, name)
	case "delete":
		for _, sandbox := range slices.Sorted(maps.Keys(m.wired))[:min(1, len(m.wired))] {
			m.node.delete(t, sandbox)
			delete(m.wired, sandbox)
		}
	case "collect":
		m.collect(t, m.look.look, 1)
	case "kill", "kill without state":
		if what != "kill" {
			m.loseState()
		}
		m.kill(t, slices.Collect(maps.Values(m.wired))...)
		m.look = newCollection(m.Manager)
		m.present(t)
	case "kubelet restarts":
		if err := m.kubelet.Restart(); err != nil {
			rt.Fatal(err)
		}
		m.await(t, m.count())
	case "much later":
		m.clock.move(10 * m.config.CollectAfter)
	}
}

// add wires a sandbox of a pod; each container gets what it was told.
func (m *model) add(t *testing.T, rt *rapid.T, name string) {
	sandbox := fmt.Sprintf("%s-%d", name, m.steps)
	ev, err := m.node.add(t.Context(), name, sandbox)
	if err != nil {
		rt.Fatalf("ADD of %s: %v", name, err)
	}
	m.wired[sandbox] = ev.Attachment
	var want []kubelettest.Container
	for _, c := range m.got[name] {
		if len(c.Devices) > 0 {
			want = append(want, c)
		}
	}
	if len(ev.Grants) != len(want) {
		rt.Fatalf("pod %s: %d grants, want %d", name, len(ev.Grants), len(want))
	}
	for i, c := range want {
		a := ev.Grants[i].Allocation
		if ev.Grants[i].Container != c.Name || string(a.Secret) != c.Envs["MEMIF_SECRET"] || a.Directory != c.Mounts[0].GetHostPath() {
			rt.Fatalf("pod %s container %s was told %v, and is granted %+v", name, c.Name, c.Envs, a)
		}
	}
}

func (m *model) check(t *testing.T, rt *rapid.T) {
	devices, sockets := make(map[string]string), make(map[uint32]string)
	all := m.Allocations()
	for _, a := range all {
		if other, taken := sockets[a.Socket]; taken {
			rt.Fatalf("socket %d is %s's and %s's", a.Socket, a.ID, other)
		}
		if other, known := m.secrets[a.Secret]; known && other != a.ID {
			rt.Fatalf("%s has the secret of %s", a.ID, other)
		}
		sockets[a.Socket], m.secrets[a.Secret] = a.ID, a.ID
		for _, d := range a.Devices {
			if other, taken := devices[d]; taken {
				rt.Fatalf("device %s is %s's and %s's", d, a.ID, other)
			}
			devices[d] = a.ID
		}
	}
	if saved := m.stateFile(t); len(saved) != len(all) {
		rt.Fatalf("%d allocations, %d saved", len(all), len(saved))
	}
	for _, containers := range m.got {
		for _, c := range containers {
			m.checkContainer(rt, c, devices)
		}
	}
}

// checkContainer sees that a container has what it was told, as long as its pod is there.
func (m *model) checkContainer(rt *rapid.T, c kubelettest.Container, holders map[string]string) {
	for _, d := range c.Devices {
		a := m.find(holders[d])
		if a == nil || a.Directory != c.Mounts[0].GetHostPath() || string(a.Secret) != c.Envs["MEMIF_SECRET"] {
			rt.Fatalf("container %s, which was told %v, has lost device %s", c.Name, c.Envs, d)
		}
		if mode(secretPath(a.Directory)) == "" || mode(recordPath(a.Directory)) == "" {
			rt.Fatalf("files of %s are missing", a.ID)
		}
	}
}
