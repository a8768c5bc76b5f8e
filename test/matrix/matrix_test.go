package matrix_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weftnet/weft/devicemanager/kubelettest"
	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/test/leftovers"
	"github.com/weftnet/weft/test/must"
	"github.com/weftnet/weft/test/netns"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/programs"
)

// matrix is the node that all cells use in turn.
type matrix struct {
	node         *node.Node
	home         string // path of its network namespace
	runtime      *node.Runtime
	podInterface string // of the running agent
	pods         int    // number of pods so far
}

// TestMatrix tests all cells of a node with IPv4, of one with IPv6 and of one with both: ADD of two pods with the
// interface, the result and the machine, packets, CHECK, a crash of the agent and all of that again, DEL, and the
// comparison with the state before.
func TestMatrix(t *testing.T) {
	netnstest.RequireTap(t)
	dir := programs.Build(t)
	for _, families := range []string{"v4", "v6", "dual"} {
		t.Run(families, func(t *testing.T) {
			t.Parallel() // cells mostly wait
			m := newMatrix(t, dir, options(families))
			defer m.end(t)
			m.start(t)
			for _, c := range cells(families) {
				t.Run(c.String(), func(t *testing.T) { m.play(t, c) })
			}
		})
	}
}

func newMatrix(t *testing.T, dir string, o node.Options) *matrix {
	t.Helper()
	n, err := node.New(dir, o)
	must.Succeed(t, err)
	m := &matrix{node: n, home: filepath.Join(n.Dir, "home"), podInterface: dataplane.Tap()}
	must.Succeed(t, netns.Make(m.home))
	m.runtime, err = n.Runtime(os.Stderr)
	must.Succeed(t, err)
	// The agent waits longer for a kubelet that lists no pod at all, because that may have just started.
	_, err = n.Kubelet.Admit(t.Context(), node.Memif, kubelettest.Pod{Namespace: "kube-system", Name: "proxy"})
	must.Succeed(t, err)
	return m
}

// start starts the agent in the node's namespace.
func (m *matrix) start(t *testing.T) {
	t.Helper()
	must.Succeed(t,
		netns.Do(m.home, func() error { return m.node.StartAgent(t.Context(), "--pod-interface", m.podInterface) }))
}

func (m *matrix) end(t *testing.T) {
	if t.Failed() {
		t.Log(m.node.LogTails(100))
	}
	if err := errors.Join(m.node.StopAgent(), netns.Remove(m.home), m.node.Close()); err != nil {
		t.Errorf("remove the node: %v", err)
	}
}

// attachedPod is a pod with the result of its ADD.
type attachedPod struct {
	*node.Pod
	links  []node.Link
	routes []string // "destination via gateway"

	container kubelettest.Container // with its devices; the name is "" if the pod has no memif
	plug      *plug                 // of its memif
}

// socket returns the path of the pod's memif; "" if it has none.
func (w *attachedPod) socket() string {
	if w.container.Name == "" {
		return ""
	}
	return w.container.Mounts[0].GetHostPath() + "/memif.sock"
}

// last returns the interface of the cell: the main one, or the only one beside it.
func (w *attachedPod) last() node.Link { return w.links[len(w.links)-1] }

// settling is the time in which the kernel may remove objects and close connections.
const settling = time.Minute

// cniTimeout is the timeout of one call of a plugin.
const cniTimeout = time.Minute

// play runs all tests of a cell.
func (m *matrix) play(t *testing.T, c cell) { m.playAs(t, c, "") }

// playAs is play with pods of a Kubernetes namespace.
func (m *matrix) playAs(t *testing.T, c cell, namespace string) {
	if m.podInterface != c.podInterface() {
		m.podInterface = c.podInterface()
		m.restart(t)
	}
	a := m.newPod(t, c)
	b := m.newPod(t, c)
	a.Namespace = namespace
	b.Namespace = namespace
	defer func() { must.Succeed(t, a.Remove()); must.Succeed(t, b.Remove()) }()
	places := m.places(a, b)
	before, err := leftovers.Steady(t.Context(), places, settling)
	must.Succeed(t, err)
	defer m.leave(t, before, a, b)

	m.add(t, a)
	m.add(t, b)
	c.checkResult(t, a)
	c.checkResult(t, b)
	wiring, err := leftovers.Take(t.Context(), places)
	must.Succeed(t, err)
	c.checkDump(t, wiring.Since(before))
	c.exchange(t, m.home, a, b)
	m.check(t, a, b)
	wiring, err = leftovers.Steady(t.Context(), places, settling) // with learned neighbours
	must.Succeed(t, err)

	m.restart(t)
	m.same(t, places, wiring)
	c.exchange(t, m.home, a, b)
	m.check(t, a, b)
}

// same waits until the state equals that before a crash of the agent. Kernels may learn more neighbours: they probe
// them some seconds after traffic, with link-local addresses.
func (m *matrix) same(t *testing.T, places leftovers.Places, before leftovers.Snapshot) {
	t.Helper()
	differ := func(now leftovers.Snapshot) []string {
		return slices.DeleteFunc(now.Since(before), func(line string) bool {
			return strings.HasPrefix(line, "+ neighbour ") && strings.HasSuffix(line, " learned")
		})
	}
	now, err := leftovers.Until(t.Context(), places, settling, func(now leftovers.Snapshot) bool {
		return len(differ(now)) == 0
	})
	must.Succeed(t, err)
	if lines := differ(now); len(lines) > 0 {
		t.Errorf("differences after a crash of the agent:\n  %s", strings.Join(lines, "\n  "))
	}
}

func (m *matrix) newPod(t *testing.T, c cell) *attachedPod {
	t.Helper()
	m.pods++
	p, err := m.node.NewPod(fmt.Sprintf("p%d", m.pods))
	must.Succeed(t, err)
	p.Annotations = c.annotations()
	w := &attachedPod{Pod: p}
	if c.kind == "memif" {
		w.container.Name = "vnf"
	}
	return w
}

// places lists the places where pods could leave something, without the agent's descriptors, because the agent
// restarts.
func (m *matrix) places(a, b *attachedPod) leftovers.Places {
	return leftovers.Places{
		Namespaces:  map[string]string{"node": m.home, "a": a.Netns, "b": b.Netns},
		Directories: m.node.Watched(),
		Processes:   map[string]int{"weft-vswitch": m.node.DataplanePID()},
		Agent:       m.node.Socket(),
		Dataplane:   m.node.DataplaneSocket(),
	}
}

// add adds a pod: kubelet's allocation, ADD, and the start of its program.
func (m *matrix) add(t *testing.T, w *attachedPod) {
	t.Helper()
	if w.container.Name != "" {
		containers, err := m.node.Admit(t.Context(), w.Pod, kubelettest.Container{Name: w.container.Name, Limit: 1})
		must.Succeed(t, err)
		w.container = containers[0]
	}
	ctx, cancel := context.WithTimeout(t.Context(), cniTimeout)
	defer cancel()
	result, err := m.runtime.Add(ctx, w.Pod)
	must.Succeed(t, err)
	w.links, err = node.Links(result)
	must.Succeed(t, err)
	for _, r := range result.Routes {
		w.routes = append(w.routes, fmt.Sprintf("%s via %s", &r.Dst, r.GW))
	}
	if w.container.Name != "" {
		w.plugIn(t)
	}
}

func (m *matrix) check(t *testing.T, pods ...*attachedPod) {
	t.Helper()
	for _, w := range pods {
		ctx, cancel := context.WithTimeout(t.Context(), cniTimeout)
		defer cancel()
		if err := m.runtime.Check(ctx, w.Pod); err != nil {
			t.Errorf("CHECK: %v", err)
		}
	}
}

// leave deletes the pods, makes kubelet forget them, and compares with the state before them.
func (m *matrix) leave(t *testing.T, before leftovers.Snapshot, pods ...*attachedPod) {
	for _, w := range pods {
		must.Succeed(t, w.unplug())
		ctx, cancel := context.WithTimeout(t.Context(), cniTimeout)
		defer cancel()
		if err := m.runtime.Del(ctx, w.Pod); err != nil {
			t.Errorf("DEL: %v", err)
		}
		m.node.Forget(w.Pod)
	}
	after, err := leftovers.Settle(t.Context(), m.places(pods[0], pods[1]), before, settling)
	must.Succeed(t, err)
	if lines := after.Since(before); len(lines) > 0 {
		t.Errorf("differences after DEL:\n  %s", strings.Join(lines, "\n  "))
	}
}

// restart kills the agent and starts another one.
func (m *matrix) restart(t *testing.T) {
	t.Helper()
	must.Succeed(t, m.node.KillAgent())
	m.start(t)
}
