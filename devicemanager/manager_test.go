package devicemanager

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/weftnet/weft/devicemanager/kubelettest"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/internal/secret"
	"github.com/weftnet/weft/pod"
)

// TestHundredDevicesOfFiftyPodsAreReleasedAfterRestarts restarts agent and kubelet in the middle and deletes all pods
// at the end: no file, desired value or saved allocation is left.
func TestHundredDevicesOfFiftyPodsAreReleasedAfterRestarts(t *testing.T) {
	const pods = 50
	n := newNode(t)
	secretOf := make(map[string]string) // secret by container
	var connected []*pod.Attachment
	for i := range pods {
		name := fmt.Sprintf("p%d", i)
		for _, c := range n.admit(t, podOf(name, 1, 1)) {
			secretOf[name+"/"+c.Name] = c.Envs["MEMIF_SECRET"]
		}
		if i == pods/2 {
			if err := n.kubelet.Restart(); err != nil {
				t.Fatal(err)
			}
			n.kill(t, connected...)
			n.present(t)
		}
		connected = append(connected, n.mustAdd(t, name, name))
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
			if secretOf[name+"/"+g.Container] != string(g.Allocation.Secret) {
				t.Errorf("pod %s container %s has a different secret than kubelet got", name, g.Container)
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
	n.collect(t, n.collector.collect, 3)
	if left := n.leftovers(t); len(left) != 0 || len(n.stateFile(t)) != 0 || len(n.Allocations()) != 0 {
		t.Errorf("left: %v, %v, %v", left, n.stateFile(t), n.Allocations())
	}
	if values := n.committer.Values(); len(values) != 0 {
		t.Errorf("%d values", len(values))
	}
}

// TestConcurrentAllocationsAndADDs: kubelet admits pods one by one, while runtimes send many ADDs at a time.
func TestConcurrentAllocationsAndADDs(t *testing.T) {
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

// model is the expected state of a node: the answers for each pod's containers and the connected sandboxes.
type model struct {
	*node
	got       map[string][]kubelettest.Container // by pod, from the answers to kubelet
	connected map[string]*pod.Attachment         // by sandbox
	secrets   map[secret.Text]string             // allocation by secret, ever
	steps     int
}

// TestDevicesSocketsAndSecretsStayUnique during any order of events: the answers for a pod's containers stay valid
// as long as the pod exists, and nothing is left after all pods.
func TestDevicesSocketsAndSecretsStayUnique(t *testing.T) {
	n := newNode(t, func(n *node) { n.config.Devices.Count = 6 })
	n.admit(t, kubelettest.Pod{Namespace: "kube-system", Name: "proxy"})
	rapid.Check(t, func(rt *rapid.T) {
		m := &model{
			node: n, got: make(map[string][]kubelettest.Container), connected: make(map[string]*pod.Attachment),
			secrets: make(map[secret.Text]string),
		}
		steps := rapid.IntRange(1, 25).Draw(rt, "steps")
		for range steps {
			m.step(t, rt)
			m.check(t, rt)
		}
		for name := range m.got {
			n.kubelet.Remove("shop", name)
		}
		for sandbox := range m.connected {
			n.delete(t, sandbox)
		}
		n.collect(t, m.collector.collect, 2*len(n.Allocations())+1) // allocations of one pod wait for each other
		if left := n.leftovers(t); len(left) != 0 || len(n.Allocations()) != 0 || len(n.stateFile(t)) != 0 {
			rt.Fatalf("left: %v, %v, %v", left, n.Allocations(), n.stateFile(t))
		}
	})
}

func (m *model) step(t *testing.T, rt *rapid.T) {
	m.steps++
	name := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(rt, "pod")
	switch what := rapid.SampledFrom([]string{
		"admit", "admit", "admit", "remove", "add", "add", "delete", "collect", "kill", "kill without state",
		"kubelet restarts", "much later",
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
		for _, sandbox := range slices.Sorted(maps.Keys(m.connected))[:min(1, len(m.connected))] {
			m.node.delete(t, sandbox)
			delete(m.connected, sandbox)
		}
	case "collect":
		m.collect(t, m.collector.collect, 1)
	case "kill", "kill without state":
		if what != "kill" {
			m.loseState()
		}
		m.kill(t, slices.Collect(maps.Values(m.connected))...)
		m.present(t)
	case "kubelet restarts":
		if err := m.kubelet.Restart(); err != nil {
			rt.Fatal(err)
		}
		m.await(t, m.count())
	case "much later":
		m.clock.move(10 * m.config.Collect.After)
	}
}

// add connects a sandbox of a pod and compares the grants with the answers.
func (m *model) add(t *testing.T, rt *rapid.T, name string) {
	sandbox := fmt.Sprintf("%s-%d", name, m.steps)
	ev, err := m.node.add(t.Context(), name, sandbox)
	if err != nil {
		rt.Fatalf("ADD of %s: %v", name, err)
	}
	m.connected[sandbox] = ev.Attachment
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
		if ev.Grants[i].Container != c.Name || string(a.Secret) != c.Envs["MEMIF_SECRET"] ||
			a.Directory != c.Mounts[0].GetHostPath() {
			rt.Fatalf("pod %s container %s got the answer %v and the grant %+v", name, c.Name, c.Envs, a)
		}
	}
}

func (m *model) check(t *testing.T, rt *rapid.T) {
	devices := make(map[string]string)
	sockets := make(map[uint32]string)
	all := m.Allocations()
	for _, a := range all {
		if other, taken := sockets[a.Socket]; taken {
			rt.Fatalf("socket %d belongs to %s and %s", a.Socket, a.ID, other)
		}
		if other, known := m.secrets[a.Secret]; known && other != a.ID {
			rt.Fatalf("%s has the secret of %s", a.ID, other)
		}
		sockets[a.Socket] = a.ID
		m.secrets[a.Secret] = a.ID
		for _, d := range a.Devices {
			if other, taken := devices[d]; taken {
				rt.Fatalf("device %s belongs to %s and %s", d, a.ID, other)
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

// checkContainer checks that a container still has its devices and files.
func (m *model) checkContainer(rt *rapid.T, c kubelettest.Container, holders map[string]string) {
	for _, d := range c.Devices {
		a := m.table.find(holders[d])
		if a == nil || a.Directory != c.Mounts[0].GetHostPath() || string(a.Secret) != c.Envs["MEMIF_SECRET"] {
			rt.Fatalf("container %s with the answer %v lost device %s", c.Name, c.Envs, d)
		}
		if mode(secretPath(a.Directory)) == "" || mode(recordPath(a.Directory)) == "" {
			rt.Fatalf("files of %s are missing", a.ID)
		}
	}
}

func TestInvalidConfigIsRejected(t *testing.T) {
	loop := eventloop.New(eventloop.Config{})
	for _, tt := range []struct {
		name   string
		config Config
		text   string
	}{
		{"no loop", Config{}, "event loop"},
		{"no devices", Config{Loop: loop, Devices: Devices{Count: -1}}, "count -1"},
		{"too many devices", Config{Loop: loop, Devices: Devices{Count: 1025}}, "1 to 1024"},
		{"a relative path", Config{Loop: loop, Directories: Directories{Root: "run/memif"}}, `"run/memif"`},
		{"a path with detours", Config{Loop: loop, Kubelet: Kubelet{PluginDir: "/var/../lib"}}, `"/var/../lib"`},
		{
			"a path too long for sockets",
			Config{Loop: loop, Directories: Directories{Root: "/" + strings.Repeat("a", 75)}}, "at most 75",
		},
		{"a negative interval", Config{Loop: loop, Kubelet: Kubelet{Poll: -time.Second}}, "poll"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := New(tt.config); err == nil || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("error %v, want one with %q", err, tt.text)
			}
		})
	}
}

func TestDefaults(t *testing.T) {
	m, err := New(Config{
		Loop: eventloop.New(eventloop.Config{}), Directories: Directories{Root: "/" + strings.Repeat("a", 74)},
	})
	if err != nil {
		t.Fatal(err)
	}
	c := m.config
	if c.Devices.Count != 100 || c.Kubelet.PluginDir != "/var/lib/kubelet/device-plugins" ||
		c.Mounts.Container != "/run/memif" || c.Kubelet.Poll > within {
		t.Errorf("%+v", c)
	}
	if path := c.Directories.Root + "/" + strings.Repeat("x", idLength) + "/memif.sock"; len(path) != 107 {
		t.Errorf("the longest path of a socket has %d bytes", len(path))
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
