package devicemanager

import (
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/pod"
)

// FuzzPodResources parses kubelet's list of a pod's devices: devices of other vendors are skipped.
func FuzzPodResources(f *testing.F) {
	add := func(resource string, ids ...string) {
		raw, err := proto.Marshal(&podresources.PodResources{Containers: []*podresources.ContainerResources{{
			Name: "c", Devices: []*podresources.ContainerDevices{{ResourceName: resource, DeviceIds: ids}},
		}}})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	add(pod.Resource, "memif-1", "memif-2")
	add("nvidia.com/gpu", "memif-1")
	f.Fuzz(func(t *testing.T, raw []byte) {
		var p podresources.PodResources
		if proto.Unmarshal(raw, &p) != nil {
			return
		}
		ours := 0
		for _, c := range p.GetContainers() {
			for _, d := range c.GetDevices() {
				if d.GetResourceName() == pod.Resource {
					ours += len(d.GetDeviceIds())
				}
			}
		}
		for _, o := range devicesIn(&p) {
			if len(o.devices) == 0 {
				t.Errorf("container %q has no devices", o.container)
			}
			ours -= len(o.devices)
		}
		if ours != 0 {
			t.Errorf("%d devices are missing", ours)
		}
	})
}

// FuzzPreferred passes arbitrary device lists.
func FuzzPreferred(f *testing.F) {
	f.Add("memif-1,memif-10,memif-2", "memif-3", int32(2))
	f.Add("memif-+1,memif-01,memif-99999999999999999999", "", int32(-1))
	f.Fuzz(func(t *testing.T, available, must string, size int32) {
		req := &v1beta1.ContainerPreferredAllocationRequest{
			AvailableDeviceIDs:   strings.Split(available, ","),
			MustIncludeDeviceIDs: strings.Split(must, ","),
			AllocationSize:       size,
		}
		got := preferred(req)
		if len(got) > max(int(size), len(req.GetMustIncludeDeviceIDs())) {
			t.Errorf("%d devices, %d were requested", len(got), size)
		}
		for _, d := range req.GetMustIncludeDeviceIDs() {
			if !slices.Contains(got, d) {
				t.Errorf("device %q is missing", d)
			}
		}
		for _, d := range got {
			if n, ok := deviceNumber(d); ok && deviceID(n) != d {
				t.Errorf("device %q has number %d", d, n)
			}
		}
	})
}

// FuzzRestore restores allocations from any JSON: each stays in its own directory, and no two share a device or socket.
func FuzzRestore(f *testing.F) {
	one := whole().saved()
	other := one
	other.ID = strings.Repeat("z", idLength)
	other.Directory = "/run/weft/memif/" + other.ID
	raw, err := json.Marshal([]Saved{one, other})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add([]byte(`[{"id":"..","directory":"/..","devices":["memif-1","memif-1"]}]`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var saved []Saved
		if json.Unmarshal(raw, &saved) != nil {
			return
		}
		m, err := New(Config{
			Kubelet:     Kubelet{PluginDir: "/none", PodResources: "/none"},
			Directories: Directories{Root: "/run/weft/memif", DeviceInfo: "/none"},
			Loop:        eventloop.New(eventloop.Config{}), Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		m.Restore(saved, nil)
		devices := map[string]string{}
		sockets := map[uint32]string{}
		for _, a := range m.table.inOrder() {
			if strings.ContainsAny(a.ID, "/.") || !strings.HasSuffix(a.Directory, "/"+a.ID) {
				t.Errorf("allocation %q in %q", a.ID, a.Directory)
			}
			if other := sockets[a.Socket]; other != "" || a.Socket == 0 {
				t.Errorf("allocations %s and %s have socket %d", other, a.ID, a.Socket)
			}
			sockets[a.Socket] = a.ID
			for _, d := range a.Devices {
				if other := devices[d]; other != "" && other != a.ID {
					t.Errorf("allocations %s and %s have device %s", other, a.ID, d)
				}
				devices[d] = a.ID
			}
		}
	})
}
