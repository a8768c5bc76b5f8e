package devicemanager

import (
	"context"
	"errors"
	"os"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/pod"
)

// event is the ADD of pod a.
func (n *node) event(t *testing.T) *pod.AddPod {
	t.Helper()
	ev, err := n.addEvent(t.Context(), "a", "s1")
	if err != nil {
		t.Fatal(err)
	}
	return ev
}

// TestAnAllocationOpensToItsPodOnly: owner and modes of what stands on the node.
func TestAnAllocationOpensToItsPodOnly(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: files are given to other users")
	}
	for _, tt := range []struct {
		name              string
		uid, gid          int
		directory, secret string
	}{
		{"with a group", 0, 1000, "dgrwxr-x---", "-r--r-----"},
		{"with a user and a group", 1001, 1000, "dgrwxr-x---", "-r--r-----"},
		{"with root's group", 0, 0, "dgrwxr-x---", "-r--r-----"},
		{"with a group that nobody knows", 0, pod.UnknownGroup, "drwxr-xr-x", "-r--r--r--"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t)
			n.admit(t, podOf("a", 1))
			ev := n.event(t)
			ev.Grants[0].Allocation.UID, ev.Grants[0].GID = tt.uid, tt.gid
			if _, err := n.loop.Do(t.Context(), ev); err != nil {
				t.Fatal(err)
			}
			a := n.Allocations()[0]
			for path, want := range map[string]string{a.Directory: tt.directory, a.Directory + "/secret": tt.secret, n.config.Root: "drwx------"} {
				if got := mode(path); got != want {
					t.Errorf("%s has mode %s, want %s", path, got, want)
				}
			}
			if uid, gid := ownerOf(t, a.Directory+"/secret"); uid != tt.uid || gid != max(tt.gid, 0) {
				t.Errorf("secret is of user %d and group %d", uid, gid)
			}
			if a.Pod != idOf("a") || a.Container != "c0" || !a.Granted || a.UID != tt.uid || a.GID != tt.gid {
				t.Errorf("allocation %+v", a)
			}
			if s := n.Stats(); s.Devices["granted"] != 1 || s.Devices["allocated"] != 0 || s.Devices["free"] != 99 {
				t.Errorf("stats %+v", s)
			}
		})
	}
}

func ownerOf(t *testing.T, path string) (uid, gid int) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	owner := info.Sys().(*syscall.Stat_t)
	return int(owner.Uid), int(owner.Gid)
}

// TestAGrantThatMakesNoSenseIsRefused with an error of one line, and nothing changes.
func TestAGrantThatMakesNoSenseIsRefused(t *testing.T) {
	for _, tt := range []struct {
		name  string
		bend  func(*pod.AddPod)
		code  uint
		texts []string
	}{
		{"an allocation that is not there", func(ev *pod.AddPod) { ev.Grants[0].Allocation.ID = "gone" }, pod.CodeDeviceMissing,
			[]string{"c0", "gone", "create it again"}},
		{"owners that differ in one container", func(ev *pod.AddPod) {
			other := ev.Grants[0]
			other.GID = 1000
			ev.Grants = append(ev.Grants, other)
		}, pod.CodeInvalidAnnotation, []string{pod.AnnotationOptions, "memif2", "c0"}},
		{"the allocation of another container", func(ev *pod.AddPod) { ev.Grants[1].Allocation.ID = ev.Grants[0].Allocation.ID },
			pod.CodeInvalidAnnotation, []string{"memif1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t)
			n.admit(t, podOf("a", 1, 1))
			before := n.Allocations()[0]
			ev := n.event(t)
			tt.bend(ev)
			_, err := n.loop.Do(t.Context(), ev)
			wantCode(t, err, tt.code, tt.texts...)
			if after := n.Allocations()[0]; after.Granted || mode(before.Directory) != "drwx------" {
				t.Errorf("allocation %+v", after)
			}
			if _, used := n.user(before.ID); used {
				t.Error("the allocation counts as used")
			}
		})
	}
}

// TestAnotherPodsAllocationIsRefused whatever somebody grants.
func TestAnotherPodsAllocationIsRefused(t *testing.T) {
	n := newNode(t)
	n.admit(t, podOf("a", 1))
	if _, err := n.add(t.Context(), "a", "s1"); err != nil {
		t.Fatal(err)
	}
	for _, id := range []pod.ID{idOf("b"), {Namespace: "shop", Name: "a", UID: "uid-of-another-a"}} {
		ev := n.event(t)
		ev.Key, ev.ID = keyOf("s2"), id
		_, err := n.loop.Do(t.Context(), ev)
		wantCode(t, err, pod.CodeDeviceMissing, "shop/a")
	}
}

// TestASandboxMadeAgainHasTheSameAllocation: kubelet allocates once in a pod's life.
func TestASandboxMadeAgainHasTheSameAllocation(t *testing.T) {
	n := newNode(t)
	n.admit(t, podOf("a", 1))
	for _, sandbox := range []string{"s1", "s2", "s3"} {
		ev, err := n.add(t.Context(), "a", sandbox)
		if err != nil {
			t.Fatal(err)
		}
		n.delete(t, sandbox)
		n.delete(t, sandbox) // a DEL may come twice
		if all := n.Allocations(); len(all) != 1 || all[0].ID != ev.Attachment.Interfaces[0].Memif.Allocation || !all[0].Granted {
			t.Errorf("sandbox %s: %+v", sandbox, all)
		}
		if _, used := n.user(n.Allocations()[0].ID); used {
			t.Errorf("sandbox %s: still in use", sandbox)
		}
	}
}

// TestWhatFailsIsUndone: memory, files and state file are as before.
func TestWhatFailsIsUndone(t *testing.T) {
	failure := errors.New("no")
	for name, arm := range map[string]func(*node){
		"the commit": func(n *node) {
			n.committer.Before(func(_ context.Context, c eventloop.Change) error {
				if c.Atomic {
					return failure
				}
				return nil
			})
		},
		"the durable step": func(n *node) { n.saver.Before(func(context.Context, []eventloop.Saved) error { return failure }) },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.admit(t, podOf("a", 2))
			n.clock.move(inheritance)
			before, files := n.Allocations(), n.leftovers(t)
			arm(n)
			if _, err := n.loop.Do(t.Context(), &pod.AllocateDevice{Devices: []string{"memif-1", "memif-2"}}); !errors.Is(err, failure) {
				t.Errorf("allocate: %v", err)
			}
			if _, err := n.add(t.Context(), "a", "s1"); !errors.Is(err, failure) {
				t.Errorf("ADD: %v", err)
			}
			if after := n.Allocations(); !reflect.DeepEqual(after, before) {
				t.Errorf("before %+v, after %+v", before, after)
			}
			if left := n.leftovers(t); strings.Join(left, " ") != strings.Join(files, " ") || mode(before[0].Directory) != "drwx------" {
				t.Errorf("before %v, after %v", files, left)
			}
			if _, used := n.user(before[0].ID); used {
				t.Error("the allocation counts as used")
			}
		})
	}
}
