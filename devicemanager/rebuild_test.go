package devicemanager

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weftnet/weft/devicemanager/kubelettest"
	"github.com/weftnet/weft/pod"
)

// TestOnlyATrustedRecordGivesDevices: what is left of an allocation after the state file was lost, and what becomes of it.
func TestOnlyATrustedRecordGivesDevices(t *testing.T) {
	replace := func(path, content string, mode os.FileMode) error {
		_ = os.Remove(path)
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			return err
		}
		return os.Chmod(path, mode)
	}
	link := func(path string) error {
		if err := os.Rename(path, path+".aside"); err != nil {
			return err
		}
		return os.Symlink(path+".aside", path)
	}
	for _, tt := range []struct {
		name    string
		damage  func(a pod.Allocation) error
		trusted bool
	}{
		{"all as it was", func(pod.Allocation) error { return nil }, true},
		{"without the record", func(a pod.Allocation) error { return os.Remove(recordPath(a.Directory)) }, false},
		{"with half a record", func(a pod.Allocation) error { return os.Truncate(recordPath(a.Directory), 20) }, false},
		{"with a record that others may read", func(a pod.Allocation) error { return os.Chmod(recordPath(a.Directory), 0o644) }, false},
		{"with a link for a record", func(a pod.Allocation) error { return link(recordPath(a.Directory)) }, false},
		{"with another's record", func(a pod.Allocation) error {
			return replace(recordPath(a.Directory), `{"allocation":"ABCDEFGHIJKLMNOPQRST","socket":1,"devices":["memif-0"]}`, 0o600)
		}, false},
		{"without the directory", func(a pod.Allocation) error { return os.RemoveAll(a.Directory) }, false},
		{"without the secret", func(a pod.Allocation) error { return os.Remove(secretPath(a.Directory)) }, false},
		{"with half a secret", func(a pod.Allocation) error { return replace(secretPath(a.Directory), "short", 0o400) }, false},
		{"with a secret that others may write", func(a pod.Allocation) error { return os.Chmod(secretPath(a.Directory), 0o666) }, false},
		{"with a link for a secret", func(a pod.Allocation) error { return link(secretPath(a.Directory)) }, false},
		{"with a directory for a secret", func(a pod.Allocation) error {
			_ = os.Remove(secretPath(a.Directory))
			return os.Mkdir(secretPath(a.Directory), 0o755)
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := bareNode(t, func(n *node) { n.config.CollectAfter = time.Minute })
			ev := &pod.AllocateDevice{Devices: []string{"memif-0"}}
			if _, err := n.loop.Do(t.Context(), ev); err != nil {
				t.Fatal(err)
			}
			n.stop()
			n.loseState()
			if err := tt.damage(*ev.Allocation); err != nil {
				t.Fatal(err)
			}
			all := n.successor(t).Allocations()
			if len(all) != 1 || (len(all[0].Devices) == 1) != tt.trusted || (all[0].Secret == ev.Allocation.Secret) != tt.trusted {
				t.Fatalf("allocations: %+v", all)
			}
		})
	}
}

// successor is what the next agent finds, before it does anything.
func (n *node) successor(t *testing.T) *Manager {
	t.Helper()
	config := n.config
	config.Loop = n.loop
	m, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	m.Restore(n.stateFile(t), nil)
	if err := m.Rebuild(); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestASecretOfAnotherUserIsTrustedOnlyIfItIsThePods: a pod may own its allocation's directory.
func TestASecretOfAnotherUserIsTrustedOnlyIfItIsThePods(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: files are given to other users")
	}
	n := newNode(t)
	n.admit(t, podOf("a", 1))
	ev := n.event(t)
	ev.Grants[0].Allocation.UID, ev.Grants[0].GID = 1001, 1000
	if _, err := n.loop.Do(t.Context(), ev); err != nil {
		t.Fatal(err)
	}
	a := n.Allocations()[0]
	n.stop()
	n.loseState()
	for uid, trusted := range map[int]bool{0: true, 1001: true, 1002: false} {
		if err := os.Chown(secretPath(a.Directory), uid, 1000); err != nil {
			t.Fatal(err)
		}
		if got := n.successor(t).Allocations()[0]; (got.Secret == a.Secret) != trusted || trusted && (got.UID != 1001 || got.Pod != idOf("a")) {
			t.Errorf("secret of user %d: %+v", uid, got)
		}
	}
}

// TestStraysAreTakenAway: of a directory that nobody knows nothing is left after a while, and other files are let be.
func TestStraysAreTakenAway(t *testing.T) {
	n := bareNode(t, func(n *node) { n.config.CollectAfter = time.Minute })
	stray := n.config.Root + "/ABCDEFGHIJKLMNOPQRST"
	foreign := n.config.Root + "/README"
	if err := os.MkdirAll(stray+"/x", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(foreign, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	n.kill(t)
	if _, err := n.kubelet.Admit(t.Context(), pod.Resource, kubelettest.Pod{Namespace: "kube-system", Name: "proxy"}); err != nil {
		t.Fatal(err)
	}
	n.collect(t, newCollection(n.Manager).look, 3)
	if left := n.leftovers(t); strings.Join(left, " ") != foreign {
		t.Errorf("left: %v", left)
	}
}

// TestContradictionsInTheStateFileAreResolved: no device and no socket is two allocations'.
func TestContradictionsInTheStateFileAreResolved(t *testing.T) {
	n := bareNode(t)
	save := func(id string, age time.Duration, devices ...string) Saved {
		return Saved{
			ID: strings.Repeat(id, idLength), Directory: n.config.Root + "/" + strings.Repeat(id, idLength),
			Secret: strings.Repeat(id, secretLength), account: account{Socket: 1, Devices: devices, Created: n.clock.Now().Add(-age)},
		}
	}
	broken := save("x", 0, "memif-0")
	broken.Secret = ""
	old, young := save("a", time.Hour, "memif-0", "memif-1"), save("b", time.Minute, "memif-0")
	for _, order := range [][]Saved{{old, young, broken}, {broken, young, old}} {
		config := n.config
		config.Loop = n.loop
		m, err := New(config)
		if err != nil {
			t.Fatal(err)
		}
		m.Restore(order, nil)
		all := m.Allocations()
		if len(all) != 2 || strings.Join(all[0].Devices, " ") != "memif-1" || strings.Join(all[1].Devices, " ") != "memif-0" || all[0].Socket == all[1].Socket {
			t.Errorf("allocations: %+v", all)
		}
	}
}
