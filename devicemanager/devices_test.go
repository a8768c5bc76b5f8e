package devicemanager

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/eventloop/eventlooptest"
	"github.com/weftnet/weft/pod"
)

func wantCode(t *testing.T, err error, code uint, texts ...string) {
	t.Helper()
	coded, ok := errors.AsType[*pod.Error](err)
	if !ok || coded.Code != code {
		t.Fatalf("error %v, want one of code %d", err, code)
	}
	for _, text := range append(texts, "shop/") {
		if !strings.Contains(err.Error(), text) || strings.Contains(err.Error(), "\n") {
			t.Errorf("error %q, want one line with %q", err, text)
		}
	}
}

// TestContainersGetWhatKubeletGaveThem whichever of its methods a kubelet has, and whatever other vendors' devices a
// container has.
// rows: MEM-25
func TestContainersGetWhatKubeletGaveThem(t *testing.T) {
	for name, get := range map[string]error{
		"Get":                                   nil,
		"List, of a kubelet without Get":        status.Error(codes.Unimplemented, "unknown method Get"),
		"List, of one where it is switched off": errors.New("PodResources API Get method disabled"),
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			p := podOf("a", 2, 0, 1)
			for i := range p.Containers {
				p.Containers[i].Foreign = map[string][]string{"example.com/gpu": {"memif-0", "gpu-1"}}
			}
			n.admit(t, podOf("other", 1))
			namesake := podOf("a", 1)
			namesake.Namespace = "bank"
			n.admit(t, namesake)
			containers := n.admit(t, p)
			n.kubelet.FailGet(get)
			grants, err := n.Devices(t.Context(), idOf("a"))
			if err != nil || len(grants) != 2 {
				t.Fatalf("grants %+v, %v", grants, err)
			}
			for i, c := range []int{0, 2} {
				g := grants[i]
				if g.Container != containers[c].Name || string(g.Allocation.Secret) != containers[c].Envs["MEMIF_SECRET"] || g.GID != pod.UnknownGroup {
					t.Errorf("grant %d: %+v", i, g)
				}
			}
		})
	}
}

func TestPodsWithoutDevicesGetNone(t *testing.T) {
	n := newNode(t)
	n.admit(t, podOf("a", 0))
	for _, id := range []pod.ID{{}, idOf("a"), idOf("unknown")} {
		if grants, err := n.Devices(t.Context(), id); err != nil || len(grants) != 0 {
			t.Errorf("%s: %v, %v", id, grants, err)
		}
	}
}

func TestAKubeletThatIsAwayIsAskedAgainLater(t *testing.T) {
	n := newNode(t)
	n.admit(t, podOf("a", 1))
	if err := n.kubelet.Stop(); err != nil {
		t.Fatal(err)
	}
	_, err := n.Devices(t.Context(), idOf("a"))
	wantCode(t, err, pod.CodeTryAgain, "kubelet")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = n.Devices(ctx, idOf("a"))
	wantCode(t, err, pod.CodeTryAgain)
}

// TestAnAgentKilledBetweenAllocateAndADDFindsTheSameSocket with its state file and without it, also for a sandbox that is
// made again, and whatever other vendors' devices the pod has.
// rows: MEM-25
func TestAnAgentKilledBetweenAllocateAndADDFindsTheSameSocket(t *testing.T) {
	for _, tt := range []struct {
		name          string
		granted, lost bool
	}{
		{"before the first ADD", false, false},
		{"before the first ADD, without the state file", false, true},
		{"before another ADD", true, false},
		{"before another ADD, without the state file", true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t)
			p := podOf("a", 1)
			p.Containers[0].Foreign = map[string][]string{"example.com/gpu": {"gpu-1"}}
			n.admit(t, p)
			if tt.granted {
				n.mustAdd(t, "a", "s1")
				n.delete(t, "s1")
			}
			had := n.Allocations()[0]
			if tt.lost {
				n.loseState()
			}
			n.kill(t)
			n.mustAdd(t, "a", "s2")
			got := n.Allocations()[0]
			if got.ID != had.ID || got.Secret != had.Secret || got.Socket != had.Socket || !got.Created.Equal(had.Created) {
				t.Errorf("had %+v, has %+v", had, got)
			}
			if saved := n.stateFile(t); len(saved) != 1 || saved[0].Secret != string(had.Secret) {
				t.Errorf("saved %v", saved)
			}
		})
	}
}

// loseState is what a damaged state file leads to, for the next agent.
func (n *node) loseState() { n.saver = &eventlooptest.Saver{} }

// TestWhereAllIsLostTheErrorSaysWhatToDo: neither state file nor directory.
func TestWhereAllIsLostTheErrorSaysWhatToDo(t *testing.T) {
	n := newNode(t)
	n.admit(t, podOf("a", 1))
	n.loseState()
	if err := os.RemoveAll(n.config.Root); err != nil {
		t.Fatal(err)
	}
	n.kill(t)
	n.present(t)
	_, err := n.Devices(t.Context(), idOf("a"))
	wantCode(t, err, pod.CodeDeviceMissing, "c0", "memif-0", "delete the pod and create it again")
	if err := n.kubelet.StartContainer(t.Context(), "shop", "a", "c0"); err == nil || !strings.Contains(err.Error(), "create it again") {
		t.Errorf("start: %v", err)
	}
}

// TestAfterARebootTheSameDirectoriesAreThere: kubelet replays the mounts that it knows.
func TestAfterARebootTheSameDirectoriesAreThere(t *testing.T) {
	n := newNode(t)
	n.admit(t, podOf("a", 1))
	if _, err := n.add(t.Context(), "a", "s1"); err != nil {
		t.Fatal(err)
	}
	had := n.Allocations()[0]
	n.stop()
	for _, gone := range []string{n.dir + "/run", n.config.DeviceInfoDir} { // they are on a tmpfs
		if err := os.RemoveAll(gone); err != nil {
			t.Fatal(err)
		}
	}
	n.boot(t) // attachments are dropped at a reboot
	if text, err := os.ReadFile(had.Directory + "/secret"); err != nil || string(text) != string(had.Secret) {
		t.Errorf("secret file: %v, same %v", err, string(text) == string(had.Secret))
	}
	if _, err := n.add(t.Context(), "a", "s2"); err != nil || n.Allocations()[0].ID != had.ID {
		t.Errorf("ADD after the reboot: %v, %+v", err, n.Allocations())
	}
}

// TestALostDirectoryIsMadeAgainBeforeAnADD which takes it for there; with all above it, if need be.
func TestALostDirectoryIsMadeAgainBeforeAnADD(t *testing.T) {
	n := newNode(t)
	n.admit(t, podOf("a", 1))
	n.mustAdd(t, "a", "s1")
	n.delete(t, "s1")
	had := n.Allocations()[0]
	for _, lost := range []string{had.Directory, n.config.Root, n.dir + "/run"} {
		if err := os.RemoveAll(lost); err != nil {
			t.Fatal(err)
		}
		n.mustAdd(t, "a", "s2")
		n.delete(t, "s2")
		if text, err := os.ReadFile(had.Directory + "/secret"); err != nil || string(text) != string(had.Secret) || mode(n.config.Root) != "drwx------" {
			t.Errorf("without %s: secret file: %v, same %v, root %s", lost, err, string(text) == string(had.Secret), mode(n.config.Root))
		}
	}
	n.committer.After(func(context.Context, eventloop.Change) error { return errors.New("disk is full") })
	if err := os.RemoveAll(had.Directory); err != nil {
		t.Fatal(err)
	}
	_, err := n.Devices(t.Context(), idOf("a"))
	wantCode(t, err, pod.CodeIO, "c0", had.Directory, "disk is full")
}

func TestKubeletIsAskedWhetherItListsAPod(t *testing.T) {
	n := newNode(t)
	n.admit(t, podOf("a", 1))
	n.admit(t, podOf("bare", 0))
	for name, want := range map[string]bool{"a": true, "bare": true, "gone": false} {
		if got, err := n.Lists(t.Context(), idOf(name)); err != nil || got != want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	if err := n.kubelet.Stop(); err != nil {
		t.Fatal(err)
	}
	if got, err := n.Lists(t.Context(), idOf("gone")); err == nil || got {
		t.Errorf("without kubelet: %v, %v", got, err)
	}
}
