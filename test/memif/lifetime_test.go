package memif_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/weftnet/weft/agent/statefile/statefiletest"
	"github.com/weftnet/weft/test/node"
)

// A DEL removes interface and socket, and keeps kubelet's allocation.
func TestNewSandboxOfAPodGetsTheSameSocketAndSecret(t *testing.T) {
	g := newGranted(t, nil)
	g.addAndCheck(g.pod)
	g.del(g.pod)
	g.unserved()
	g.kept()
	g.try(g.runtime.Del(t.Context(), g.pod)) // repeated
	g.addAndCheck(g.another("d2"))
}

// The ADD of the new sandbox precedes the DEL of the old one.
func TestLateDELOfAnOldSandboxDoesNotAffectTheNewOne(t *testing.T) {
	g := newGranted(t, nil)
	g.addAndCheck(g.pod)
	fresh := g.another("d2")
	m1 := g.addAndCheck(fresh)
	responder := g.start(fresh, g.vnf, "icmpresponder")
	g.awaitOutput(responder, "m1: connected to")
	stop := g.stream(g.asker, m1.Bare()[0])
	g.try(g.runtime.Del(t.Context(), g.pod))
	if loss := stop(); loss.Answered != loss.Sent {
		t.Errorf("during the DEL of the old sandbox: %s", loss)
	}
	responder.end()
	g.works(fresh, m1)
	g.del(fresh)
	g.unserved()
}

// The next agent executes the DEL and keeps the allocation.
func TestDELWhileTheAgentIsDownIsExecutedAtItsStart(t *testing.T) {
	g := newGranted(t, nil)
	g.addAndCheck(g.pod)
	g.try(g.KillAgent())
	g.del(g.pod)
	if _, err := os.Lstat(inDirectory(g.vnf, "memif.sock")); err != nil {
		t.Errorf("the socket is gone although no agent runs: %v", err)
	}
	g.try(g.StartAgent(t.Context()))
	g.unserved()
	g.kept()
	g.registered()
	g.addAndCheck(g.another("d2"))
}

// The directory has the same secret before the container starts.
func TestLostDirectoryIsRecreated(t *testing.T) {
	for name, lose := range map[string]func(g *granted) error{
		"of the container": func(g *granted) error { return os.RemoveAll(directory(g.vnf)) },
		"of all":           func(g *granted) error { return os.RemoveAll(g.Memifs()) },
	} {
		t.Run(name, func(t *testing.T) {
			g := newGranted(t, nil)
			g.try(lose(g)) // before the first sandbox
			m1 := g.addAndCheck(g.pod)
			g.try(lose(g)) // during a sandbox
			g.works(g.pod, m1)
			g.del(g.pod)
			g.try(lose(g)) // between two sandboxes
			g.addAndCheck(g.another("d2"))
		})
	}
}

// Kubelet keeps its allocations, and the runtime makes new sandboxes.
func TestSameSocketWorksAfterAReboot(t *testing.T) {
	g := newGranted(t, nil)
	g.addAndCheck(g.pod)
	g.try(errors.Join(g.KillAgent(), g.Kubelet.Stop(), g.KillDataplane()))
	g.try(errors.Join(g.pod.Remove(), g.asker.Remove(), statefiletest.ChangeBoot(filepath.Join(g.State(), "state.db"))))
	run := filepath.Dir(g.Socket())
	g.try(errors.Join(os.RemoveAll(run), os.Mkdir(run, 0o700)))
	g.try(g.Kubelet.Start())
	g.try(g.StartAgent(t.Context()))
	g.registered()
	g.kept()
	g.asker = g.lab.neighbour("a2")
	g.addAndCheck(g.another("d2"))
}

// The agent is killed with its state file and without, and the pod also has devices of another plugin.
func TestMemifsSurviveAnAgentKilledBetweenAllocateAndADD(t *testing.T) {
	for name, lost := range map[string]bool{"with its state": false, "without its state": true} {
		t.Run(name, func(t *testing.T) {
			g := newGranted(t, map[string][]string{"example.com/gpu": {"gpu-0", "memif-0"}})
			g.restart(lost)
			g.kept()
			m1 := g.addAndCheck(g.pod)
			g.restart(lost)
			g.works(g.pod, m1)
			g.del(g.pod)
			g.restart(lost)
			g.addAndCheck(g.another("d2"))
		})
	}
}

// The agent is down when the sandbox ends; state file, dataplane, or both are lost too.
func TestSandboxThatEndsWhileTheAgentIsDownDoesNotBlockTheNext(t *testing.T) {
	for name, lose := range map[string]func(g *granted) error{
		"nothing":       func(*granted) error { return nil },
		"the state":     func(g *granted) error { return os.Remove(filepath.Join(g.State(), "state.db")) },
		"the dataplane": func(g *granted) error { return g.KillDataplane() },
		"both": func(g *granted) error {
			return errors.Join(os.Remove(filepath.Join(g.State(), "state.db")), g.KillDataplane())
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGranted(t, nil)
			g.addAndCheck(g.pod)
			g.try(errors.Join(g.KillAgent(), g.pod.Remove(), lose(g)))
			g.try(g.StartAgent(t.Context()))
			g.registered()
			g.asker = g.lab.neighbour("a2") // the first asker is unknown if both are lost
			g.addAndCheck(g.another("d2"))
			g.try(g.runtime.Del(t.Context(), g.pod)) // late
			fresh := g.another("d3")
			g.works(fresh, g.add(fresh)[1])
		})
	}
}

// restart kills the agent, deletes its state file if lost is true, and starts another agent.
func (g *granted) restart(lost bool) {
	g.Helper()
	g.try(g.KillAgent())
	if lost {
		g.try(os.Remove(filepath.Join(g.State(), "state.db")))
	}
	g.try(g.StartAgent(g.Context()))
	g.registered()
}

// registered waits until kubelet has devices of the node again.
func (g *granted) registered() {
	g.Helper()
	g.try(g.Kubelet.Await(g.Context(), node.Memif, memifs))
}

// del deletes a sandbox as a runtime does.
func (l *lab) del(sandbox *node.Pod) {
	l.Helper()
	l.try(l.runtime.Del(l.Context(), sandbox))
	l.try(sandbox.Remove())
}

// unserved expects that neither the dataplane nor the container's directory has an object of the pod's memif.
func (g *granted) unserved() {
	g.Helper()
	for _, name := range []string{"memif.sock", "interfaces.json"} {
		if _, err := os.Lstat(inDirectory(g.vnf, name)); !errors.Is(err, fs.ErrNotExist) {
			g.Errorf("%s exists after DEL: %v", name, err)
		}
	}
	if left := g.served(); len(left) > 0 {
		g.Errorf("the dataplane has %q", left)
	}
}
