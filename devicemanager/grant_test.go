package devicemanager

import (
	"context"
	"errors"
	"os"
	"reflect"
	"strings"
	"syscall"
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
		t.Fatalf("error %v, want code %d", err, code)
	}
	for _, text := range append(texts, "shop/") {
		if !strings.Contains(err.Error(), text) || strings.Contains(err.Error(), "\n") {
			t.Errorf("error %q, want one line with %q", err, text)
		}
	}
}

// TestContainersGetWhatKubeletGaveThem with and without PodResources.Get, and next to devices of other
// vendors.
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
				if g.Container != containers[c].Name ||
					string(g.Allocation.Secret) != containers[c].Envs["MEMIF_SECRET"] || g.GID != pod.UnknownGroup {
					t.Errorf("grant %d: %+v", i, g)
				}
			}
		})
	}
}

func TestDevicesReturnsNoneForPodWithoutDevices(t *testing.T) {
	n := newNode(t)
	n.admit(t, podOf("a", 0))
	for _, id := range []pod.ID{{}, idOf("a"), idOf("unknown")} {
		if grants, err := n.Devices(t.Context(), id); err != nil || len(grants) != 0 {
			t.Errorf("%s: %v, %v", id, grants, err)
		}
	}
}

func TestDevicesFailsWithTryAgainWhileKubeletIsAway(t *testing.T) {
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

// TestAllocationSurvivesAgentRestartBetweenAllocateAndADD with and without its state file, also for a recreated sandbox
// and next to devices of other vendors.
func TestAllocationSurvivesAgentRestartBetweenAllocateAndADD(t *testing.T) {
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
			if got.ID != had.ID || got.Secret != had.Secret || got.Socket != had.Socket ||
				!got.Created.Equal(had.Created) {
				t.Errorf("had %+v, has %+v", had, got)
			}
			if saved := n.stateFile(t); len(saved) != 1 || saved[0].Secret != string(had.Secret) {
				t.Errorf("saved %v", saved)
			}
		})
	}
}

// loseState gives the next agent an empty state file.
func (n *node) loseState() { n.saver = &eventlooptest.Saver{} }

// TestDevicesNamesTheRemedyWhenAllocationIsLost, both in the state file and on disk.
func TestDevicesNamesTheRemedyWhenAllocationIsLost(t *testing.T) {
	n := newNode(t)
	n.admit(t, podOf("a", 1))
	n.loseState()
	if err := os.RemoveAll(n.config.Directories.Root); err != nil {
		t.Fatal(err)
	}
	n.kill(t)
	n.present(t)
	_, err := n.Devices(t.Context(), idOf("a"))
	wantCode(t, err, pod.CodeDeviceMissing, "c0", "memif-0", "delete the pod and create it again")
	if err := n.kubelet.StartContainer(t.Context(), "shop", "a", "c0"); err == nil ||
		!strings.Contains(err.Error(), "create it again") {
		t.Errorf("start: %v", err)
	}
}

// TestDirectoriesAreRecreatedAfterReboot: kubelet mounts them again.
func TestDirectoriesAreRecreatedAfterReboot(t *testing.T) {
	n := newNode(t)
	n.admit(t, podOf("a", 1))
	if _, err := n.add(t.Context(), "a", "s1"); err != nil {
		t.Fatal(err)
	}
	had := n.Allocations()[0]
	n.stop()
	for _, gone := range []string{n.dir + "/run", n.config.Directories.DeviceInfo} { // they are on a tmpfs
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

// TestLostDirectoryIsRecreatedBeforeADD, with its parents if needed, and so is each file.
func TestLostDirectoryIsRecreatedBeforeADD(t *testing.T) {
	n := newNode(t)
	n.admit(t, podOf("a", 1))
	n.mustAdd(t, "a", "s1")
	n.delete(t, "s1")
	had := n.Allocations()[0]
	info := n.layout.deviceInfoPath(had.Devices[0])
	for _, lost := range []string{
		had.Directory, recordPath(had.Directory), info, n.config.Directories.DeviceInfo,
		n.config.Directories.Root, n.dir + "/run",
	} {
		if err := os.RemoveAll(lost); err != nil {
			t.Fatal(err)
		}
		n.mustAdd(t, "a", "s2")
		n.delete(t, "s2")
		if text, err := os.ReadFile(had.Directory + "/secret"); err != nil || string(text) != string(had.Secret) ||
			mode(n.config.Directories.Root) != "drwx------" {
			t.Errorf("without %s: secret file: %v, same %v, root %s", lost, err, string(text) == string(had.Secret),
				mode(n.config.Directories.Root))
		}
		if mode(recordPath(had.Directory)) == "" || mode(info) == "" {
			t.Errorf("without %s: the record has mode %q, the device information %q", lost,
				mode(recordPath(had.Directory)), mode(info))
		}
	}
	n.committer.After(func(context.Context, eventloop.Change) error { return errors.New("disk is full") })
	if err := os.RemoveAll(had.Directory); err != nil {
		t.Fatal(err)
	}
	_, err := n.Devices(t.Context(), idOf("a"))
	wantCode(t, err, pod.CodeIO, "c0", had.Directory, "disk is full")
}

// TestDeviceInformationOfADirectMemifIsDeleted, which describes the dataplane's socket, and a restart does not bring it
// back. The next container with the device has one.
func TestDeviceInformationOfADirectMemifIsDeleted(t *testing.T) {
	n := newNode(t)
	n.admit(t, podOf("a", 2))
	infos := func() (names []string) {
		entries, err := os.ReadDir(n.config.Directories.DeviceInfo)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	ev, err := n.addEvent(t.Context(), "a", "s1")
	if err != nil || len(infos()) != 2 {
		t.Fatalf("device information %v, error %v", infos(), err)
	}
	ev.Annotations = map[string]string{"role": pod.RoleClient}
	if _, err := n.loop.Do(t.Context(), ev); err != nil || len(infos()) > 0 {
		t.Errorf("after the ADD: %v, error %v", infos(), err)
	}
	n.delete(t, "s1")
	n.kill(t)
	if got := infos(); len(got) > 0 {
		t.Errorf("after a restart: %v", got)
	}
	n.kubelet.Remove("shop", "a")
	n.present(t)
	n.admit(t, podOf("b", 1))
	if got := infos(); len(got) != 1 {
		t.Errorf("after the next pod's allocation: %v", got)
	}
}

func TestListsReportsWhetherKubeletHasThePod(t *testing.T) {
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

// event returns the ADD of pod a.
func (n *node) event(t *testing.T) *pod.AddPod {
	t.Helper()
	ev, err := n.addEvent(t.Context(), "a", "s1")
	if err != nil {
		t.Fatal(err)
	}
	return ev
}

// TestGrantOpensAllocationToItsPodOnly: owner and modes of the files.
func TestGrantOpensAllocationToItsPodOnly(t *testing.T) {
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
		{"with an unknown group", 0, pod.UnknownGroup, "drwxr-xr-x", "-r--r--r--"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t)
			n.admit(t, podOf("a", 1))
			ev := n.event(t)
			ev.Grants[0].Allocation.UID = tt.uid
			ev.Grants[0].GID = tt.gid
			if _, err := n.loop.Do(t.Context(), ev); err != nil {
				t.Fatal(err)
			}
			a := n.Allocations()[0]
			for path, want := range map[string]string{
				a.Directory:               tt.directory,
				a.Directory + "/secret":   tt.secret,
				n.config.Directories.Root: "drwx------",
			} {
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

// TestInvalidGrantIsRejected with an error of one line and without changes.
func TestInvalidGrantIsRejected(t *testing.T) {
	for _, tt := range []struct {
		name  string
		bend  func(*pod.AddPod)
		code  uint
		texts []string
	}{
		{"an unknown allocation", func(ev *pod.AddPod) { ev.Grants[0].Allocation.ID = "gone" }, pod.CodeDeviceMissing,
			[]string{"c0", "gone", "create it again"}},
		{"owners that differ in one container", func(ev *pod.AddPod) {
			other := ev.Grants[0]
			other.GID = 1000
			ev.Grants = append(ev.Grants, other)
		}, pod.CodeInvalidAnnotation, []string{pod.AnnotationOptions, "memif2", "c0"}},
		{
			"the allocation of another container",
			func(ev *pod.AddPod) { ev.Grants[1].Allocation.ID = ev.Grants[0].Allocation.ID },
			pod.CodeInvalidAnnotation, []string{"memif1"},
		},
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
			if _, used := n.users.user(before.ID); used {
				t.Error("the allocation counts as used")
			}
		})
	}
}

func TestGrantFailsForAnotherPodsAllocation(t *testing.T) {
	n := newNode(t)
	n.admit(t, podOf("a", 1))
	if _, err := n.add(t.Context(), "a", "s1"); err != nil {
		t.Fatal(err)
	}
	for _, id := range []pod.ID{idOf("b"), {Namespace: "shop", Name: "a", UID: "uid-of-another-a"}} {
		ev := n.event(t)
		ev.Key = keyOf("s2")
		ev.ID = id
		_, err := n.loop.Do(t.Context(), ev)
		wantCode(t, err, pod.CodeDeviceMissing, "shop/a")
	}
}

// TestRecreatedSandboxKeepsItsAllocation: kubelet allocates once in a pod's life.
func TestRecreatedSandboxKeepsItsAllocation(t *testing.T) {
	n := newNode(t)
	n.admit(t, podOf("a", 1))
	for _, sandbox := range []string{"s1", "s2", "s3"} {
		ev, err := n.add(t.Context(), "a", sandbox)
		if err != nil {
			t.Fatal(err)
		}
		n.delete(t, sandbox)
		n.delete(t, sandbox) // a DEL may come twice
		if all := n.Allocations(); len(all) != 1 || all[0].ID != ev.Attachment.Interfaces[0].Memif.Allocation ||
			!all[0].Granted {
			t.Errorf("sandbox %s: %+v", sandbox, all)
		}
		if _, used := n.users.user(n.Allocations()[0].ID); used {
			t.Errorf("sandbox %s: still in use", sandbox)
		}
	}
}

// TestFailedEventIsRolledBack: memory, files and state file are as before.
func TestFailedEventIsRolledBack(t *testing.T) {
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
		"the durable step": func(n *node) {
			n.saver.Before(func(context.Context, []eventloop.Saved) error { return failure })
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.admit(t, podOf("a", 2))
			n.clock.move(admissionTime)
			before := n.Allocations()
			files := n.leftovers(t)
			arm(n)
			if _, err := n.loop.Do(t.Context(), &pod.AllocateDevice{
				Devices: []string{"memif-1", "memif-2"},
			}); !errors.Is(err, failure) {
				t.Errorf("allocate: %v", err)
			}
			if _, err := n.add(t.Context(), "a", "s1"); !errors.Is(err, failure) {
				t.Errorf("ADD: %v", err)
			}
			if after := n.Allocations(); !reflect.DeepEqual(after, before) {
				t.Errorf("before %+v, after %+v", before, after)
			}
			if left := n.leftovers(t); strings.Join(left, " ") != strings.Join(files, " ") ||
				mode(before[0].Directory) != "drwx------" {
				t.Errorf("before %v, after %v", files, left)
			}
			if _, used := n.users.user(before[0].ID); used {
				t.Error("the allocation counts as used")
			}
		})
	}
}
