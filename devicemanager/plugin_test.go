package devicemanager

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/weftnet/weft/devicemanager/kubelettest"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/pod"
)

// TestAllocateReturnsDirectorySocketAndSecret: the answer, and the files that exist before it.
func TestAllocateReturnsDirectorySocketAndSecret(t *testing.T) {
	n := newNode(t)
	c := n.admit(t, podOf("a", 2))[0]
	a := n.Allocations()[0]
	if len(a.ID) != 20 || len(a.Secret) != 23 || a.Socket != 1 || strings.Join(a.Devices, " ") != "memif-0 memif-1" {
		t.Errorf("allocation %+v", a)
	}
	if c.Envs["MEMIF_SOCKET"] != "/run/memif/memif.sock" || c.Envs["MEMIF_SECRET"] != string(a.Secret) ||
		len(c.Envs) != 2 {
		t.Errorf("environment: %v", c.Envs)
	}
	if len(c.Mounts) != 1 || c.Mounts[0].GetHostPath() != a.Directory ||
		c.Mounts[0].GetContainerPath() != "/run/memif" ||
		!c.Mounts[0].GetReadOnly() {
		t.Errorf("mounts: %v", c.Mounts)
	}
	if a.Directory != filepath.Join(n.config.Directories.Root, a.ID) {
		t.Errorf("directory %s", a.Directory)
	}
	want := map[string]string{
		"io.contivpp.memif.socket.host":      a.Directory + "/memif.sock",
		"io.contivpp.memif.socket.container": "/run/memif/memif.sock",
	}
	for key, value := range want {
		if c.Annotations[key] != value || len(c.Annotations) != len(want) {
			t.Errorf("annotations: %v", c.Annotations)
		}
	}
	for path, want := range map[string]string{
		n.config.Directories.Root: "drwx------",
		a.Directory:               "drwx------",
		a.Directory + "/secret":   "-r--------",
		a.Directory + ".json":     "-rw-------",
		filepath.Join(n.config.Directories.DeviceInfo, "contivpp.io-memif-memif-1-device.json"): "-rw-r--r--",
	} {
		if got := mode(path); got != want {
			t.Errorf("%s has mode %q, want %q", path, got, want)
		}
	}
	if text, err := os.ReadFile(a.Directory + "/secret"); err != nil || string(text) != string(a.Secret) {
		t.Errorf("secret file: %v, same %v", err, string(text) == string(a.Secret))
	}
	if saved := n.stateFile(t); len(saved) != 1 || saved[0].Secret != string(a.Secret) || saved[0].ID != a.ID {
		t.Errorf("saved: %v", saved)
	}
}

// TestDeviceInformationFileFollowsTheSpecification compares with device-info-spec 1.1.0.
func TestDeviceInformationFileFollowsTheSpecification(t *testing.T) {
	n := newNode(t)
	n.admit(t, podOf("a", 1))
	a := n.Allocations()[0]
	got, err := os.ReadFile(filepath.Join(n.config.Directories.DeviceInfo, "contivpp.io-memif-memif-0-device.json"))
	want := `{"type":"memif","version":"1.1.0","memif":{"role":"slave","path":"` + a.Directory +
		`/memif.sock","mode":"ethernet"}}`
	if err != nil || string(got) != want {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
}

func TestAllocateFollowsTheConfig(t *testing.T) {
	n := newNode(t, func(n *node) {
		n.config.Mounts.Writable = true
		n.config.Mounts.NoSecretEnv = true
		n.config.Mounts.Container = "/run/weft"
	})
	c := n.admit(t, podOf("a", 1))[0]
	if _, has := c.Envs["MEMIF_SECRET"]; has || c.Envs["MEMIF_SOCKET"] != "/run/weft/memif.sock" {
		t.Errorf("environment: %v", c.Envs)
	}
	if c.Mounts[0].GetReadOnly() || c.Mounts[0].GetContainerPath() != "/run/weft" {
		t.Errorf("mounts: %v", c.Mounts)
	}
}

func TestEachContainerHasItsOwnAllocation(t *testing.T) {
	n := newNode(t)
	containers := n.admit(t, podOf("a", 2, 0, 1))
	all := n.Allocations()
	if len(all) != 2 || all[0].Socket == all[1].Socket || all[0].Secret == all[1].Secret {
		t.Fatalf("allocations: %+v", all)
	}
	if len(containers[1].Envs) != 0 || containers[0].Envs["MEMIF_SECRET"] == containers[2].Envs["MEMIF_SECRET"] {
		t.Errorf("containers: %v", containers)
	}
}

// TestFailedContainerReleasesTheEarlierOnes in one request for several containers.
func TestFailedContainerReleasesTheEarlierOnes(t *testing.T) {
	n := newNode(t)
	p := n.registrar.plugin
	_, err := p.Allocate(t.Context(), &v1beta1.AllocateRequest{ContainerRequests: []*v1beta1.ContainerAllocateRequest{
		{DevicesIds: []string{"memif-0"}}, {DevicesIds: []string{"memif-1"}}, {DevicesIds: []string{"memif-1000"}},
	}})
	if err == nil || !strings.Contains(err.Error(), `memif-1000`) {
		t.Errorf("error: %v", err)
	}
	if left := n.leftovers(t); len(left) != 0 || len(n.Allocations()) != 0 || len(n.stateFile(t)) != 0 {
		t.Errorf("left: %v, %v, %v", left, n.Allocations(), n.stateFile(t))
	}
}

// Kubelet's topology manager aligns a container's processors with the NUMA node of its devices; without one it has no
// preference.
func TestDevicesHaveTheNUMANodeOfTheDataplane(t *testing.T) {
	one := 1
	for name, tt := range map[string]struct {
		node *int
		want string
	}{"none": {nil, "[]"}, "node 1": {&one, "[1]"}} {
		t.Run(name, func(t *testing.T) {
			n := bareNode(t, func(n *node) { n.config.Devices.NUMANode = tt.node })
			list, _ := n.health.list()
			if len(list.GetDevices()) != n.count() {
				t.Fatalf("%d devices", len(list.GetDevices()))
			}
			for _, d := range list.GetDevices() {
				nodes := []int64{}
				for _, of := range d.GetTopology().GetNodes() {
					nodes = append(nodes, of.GetID())
				}
				if fmt.Sprint(nodes) != tt.want || (d.GetTopology() == nil) != (tt.node == nil) {
					t.Errorf("device %s has topology %v", d.GetID(), d.GetTopology())
				}
			}
		})
	}
}

// TestLostDirectoryIsRecreatedBeforeContainerStarts with the same id and secret.
func TestLostDirectoryIsRecreatedBeforeContainerStarts(t *testing.T) {
	n := newNode(t)
	n.admit(t, podOf("a", 1))
	a := n.Allocations()[0]
	for _, lost := range []string{a.Directory + "/secret", a.Directory} {
		if err := os.RemoveAll(lost); err != nil {
			t.Fatal(err)
		}
		if err := n.kubelet.StartContainer(t.Context(), "shop", "a", "c0"); err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(a.Directory + "/secret"); err != nil || string(text) != string(a.Secret) {
			t.Errorf("secret file: %v, same %v", err, string(text) == string(a.Secret))
		}
	}
	changes := len(n.committer.Changes())
	if err := n.kubelet.StartContainer(t.Context(), "shop", "a", "c0"); err != nil ||
		len(n.committer.Changes()) != changes {
		t.Errorf("an existing directory: %v, %d changes", err, len(n.committer.Changes())-changes)
	}
}

// TestInitContainersDirectoryExistsAsLongAsThePod, although kubelet gives its devices to a later container.
func TestInitContainersDirectoryExistsAsLongAsThePod(t *testing.T) {
	n := newNode(t)
	p := podOf("a", 1, 1)
	p.Containers[0].Init = true
	containers := n.admit(t, p)
	first := n.Allocations()[0]
	second := n.Allocations()[1]
	if containers[0].Devices[0] != containers[1].Devices[0] || len(first.Devices) != 0 || len(second.Devices) != 1 {
		t.Fatalf("allocations %+v, containers %+v", n.Allocations(), containers)
	}
	if err := os.RemoveAll(first.Directory); err != nil {
		t.Fatal(err)
	}
	if err := n.kubelet.StartContainer(t.Context(), "shop", "a", "c0"); err != nil || mode(first.Directory) == "" {
		t.Errorf("start of the init container: %v, its directory %q", err, mode(first.Directory))
	}
	poll := n.collector.collect
	n.kubelet.Remove("shop", "other")
	n.collect(t, poll, 2)
	if len(n.Allocations()) != 2 {
		t.Fatalf("collected while the pod exists: %+v", n.Allocations())
	}
	n.kubelet.Remove("shop", "a")
	n.admit(t, kubelettest.Pod{Namespace: "kube-system", Name: "proxy"})
	n.collect(t, poll, 4)
	if left := n.leftovers(t); len(left) != 0 || len(n.Allocations()) != 0 {
		t.Errorf("left: %v", left)
	}
}

// TestPreferredDevicesHaveTheLowestNumbers unless kubelet requires others.
func TestPreferredDevicesHaveTheLowestNumbers(t *testing.T) {
	for _, tt := range []struct {
		name            string
		available, must string
		size            int32
		want            string
	}{
		{"by number, not by letter", "memif-10 memif-9 memif-2", "", 2, "memif-2 memif-9"},
		{"with those that must be included", "memif-0 memif-1 memif-7", "memif-7", 2, "memif-0 memif-7"},
		{"all", "memif-1 memif-0", "", 2, "memif-0 memif-1"},
		{"none", "memif-1", "", 0, ""},
		{"too few", "memif-1", "memif-1", 2, "error"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			resp, err := (&plugin{}).GetPreferredAllocation(t.Context(), &v1beta1.PreferredAllocationRequest{
				ContainerRequests: []*v1beta1.ContainerPreferredAllocationRequest{{
					AvailableDeviceIDs:   strings.Fields(tt.available),
					MustIncludeDeviceIDs: strings.Fields(tt.must),
					AllocationSize:       tt.size,
				}},
			})
			got := "error"
			if err == nil {
				got = strings.Join(resp.GetContainerResponses()[0].GetDeviceIDs(), " ")
			}
			if got != tt.want {
				t.Errorf("got %q (%v), want %q", got, err, tt.want)
			}
		})
	}
}

// TestAdmissionFailsWhenDevicesAreExhausted, and other pods keep their devices.
func TestAdmissionFailsWhenDevicesAreExhausted(t *testing.T) {
	n := newNode(t, func(n *node) { n.config.Devices.Count = 3 })
	n.admit(t, podOf("a", 2))
	if _, err := n.kubelet.Admit(t.Context(), pod.Resource, podOf("b", 1, 1)); err == nil {
		t.Error("four of three devices were allocated")
	}
	if _, err := n.Devices(t.Context(), idOf("a")); err != nil {
		t.Error(err)
	}
}

// TestAllocateFailsAfterItsTimeout: a hanging commit fails the container, and its later result is
// collected.
func TestAllocateFailsAfterItsTimeout(t *testing.T) {
	n := newNode(t, func(n *node) { n.config.AllocateTimeout = time.Second })
	hung := make(chan struct{})
	n.committer.Before(func(context.Context, eventloop.Change) error { <-hung; return nil })
	began := time.Now()
	if _, err := n.kubelet.Admit(t.Context(), pod.Resource, podOf("a", 1)); err == nil ||
		!strings.Contains(err.Error(), "deadline") {
		t.Errorf("error: %v", err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
	close(hung)
	eventually(t, "the event ends", func() bool { return len(n.stateFile(t)) == 1 })
	n.admit(t, kubelettest.Pod{Namespace: "kube-system", Name: "proxy"})
	n.collect(t, n.collector.collect, 3)
	if left := n.leftovers(t); len(left) != 0 || len(n.Allocations()) != 0 {
		t.Errorf("left: %v", left)
	}
}
