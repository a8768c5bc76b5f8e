package memif_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weftnet/weft/devicemanager/kubelettest"
	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/test/leftovers"
	"github.com/weftnet/weft/test/node"
)

// granted is a node with a pod of one container, for which kubelet has allocated one memif.
type granted struct {
	*lab
	asker *node.Pod // another pod of the node
	pod   *node.Pod
	vnf   kubelettest.Container
}

func newGranted(t *testing.T, foreign map[string][]string) *granted {
	t.Helper()
	l := newLab(t, node.Options{})
	g := &granted{lab: l, asker: l.neighbour("a")}
	pod, containers := l.admit("d", "m1/memif", "", kubelettest.Container{Name: "vnf", Limit: 1, Foreign: foreign})
	g.pod = pod
	g.vnf = containers[0]
	return g
}

// addAndCheck adds a sandbox and expects that its memif works.
func (g *granted) addAndCheck(sandbox *node.Pod) node.Link {
	g.Helper()
	m1 := g.add(sandbox)[1]
	g.works(sandbox, m1)
	return m1
}

// works expects that the restarted container, with the environment and the mount of its allocation, is reachable.
func (g *granted) works(sandbox *node.Pod, m1 node.Link) {
	g.Helper()
	if m1.SocketPath != inDirectory(g.vnf, "memif.sock") {
		g.Errorf("the socket is %s, and the container has %s", m1.SocketPath, directory(g.vnf))
	}
	g.try(g.Kubelet.StartContainer(g.Context(), "demo", g.pod.Name, g.vnf.Name))
	responder := g.start(sandbox, g.vnf, "icmpresponder")
	g.awaitOutput(responder, "m1: connected to")
	for _, address := range m1.Bare() {
		g.reach(g.asker, address)
	}
	g.try(g.runtime.Check(g.Context(), sandbox))
	responder.end()
	g.kept()
}

// kept expects that the container's allocation is the only one and has the same secret.
func (g *granted) kept() {
	g.Helper()
	list := g.allocations()
	if len(list) != 1 || list[0].Directory != directory(g.vnf) {
		g.Errorf("allocations %+v, want only that of %s", list, directory(g.vnf))
	}
	if text := g.read(inDirectory(g.vnf, memif.SecretFile)); text != g.vnf.Envs[memif.SecretVariable] {
		g.Error("the secret has changed")
	}
	there, err := filepath.Glob(filepath.Join(g.Memifs(), "*"))
	g.try(err)
	if len(there) != 2 { // the directory and the record beside it
		g.Errorf("there are %q", there)
	}
}

// another makes another sandbox of the pod.
func (g *granted) another(name string) *node.Pod {
	g.Helper()
	p, err := g.NewSandbox(g.pod, name)
	g.try(err)
	return p
}

// allocation is an allocation in the output of weftctl.
type allocation struct {
	ID        string
	Socket    int
	Devices   []string
	Directory string
	Container string
	Pod       struct{ Namespace, Name, UID string }
}

// allocations returns the agent's allocations.
func (l *lab) allocations() []allocation {
	l.Helper()
	out, err := l.Weftctl(l.Context(), "devices", "-o", "json")
	l.try(err)
	var reply struct{ Allocations []allocation }
	l.try(json.Unmarshal([]byte(out), &reply))
	return reply.Allocations
}

// served returns the dataplane's memifs, and their sockets except the default socket 0.
func (l *lab) served() (list []string) {
	l.Helper()
	all, err := leftovers.Take(l.Context(), leftovers.Places{Dataplane: l.DataplaneSocket()})
	l.try(err)
	for _, line := range all.Since(leftovers.Snapshot{}) {
		if strings.HasPrefix(line, "+ memif") && !strings.HasPrefix(line, "+ memif-socket dataplane 0 ") {
			list = append(list, line)
		}
	}
	return list
}

func (l *lab) read(path string) string {
	l.Helper()
	text, err := os.ReadFile(path)
	l.try(err)
	return string(text)
}
