package kubelettest

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const resource = "example.com/thing"

// plugin records its calls.
type plugin struct {
	v1beta1.UnimplementedDevicePluginServer

	mu    sync.Mutex
	calls []string
}

func (p *plugin) called(call string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, call)
}

func (p *plugin) GetDevicePluginOptions(context.Context, *v1beta1.Empty) (*v1beta1.DevicePluginOptions, error) {
	p.called("options")
	return &v1beta1.DevicePluginOptions{PreStartRequired: true, GetPreferredAllocationAvailable: true}, nil
}

func (p *plugin) ListAndWatch(_ *v1beta1.Empty, stream v1beta1.DevicePlugin_ListAndWatchServer) error {
	p.called("list")
	list := &v1beta1.ListAndWatchResponse{}
	for _, id := range []string{"t-0", "t-1", "t-2"} {
		list.Devices = append(list.Devices, &v1beta1.Device{ID: id, Health: v1beta1.Healthy})
	}
	if err := stream.Send(list); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

func (p *plugin) GetPreferredAllocation(
	_ context.Context, req *v1beta1.PreferredAllocationRequest,
) (*v1beta1.PreferredAllocationResponse, error) {
	p.called("prefer")
	all := req.GetContainerRequests()[0].GetAvailableDeviceIDs()
	return &v1beta1.PreferredAllocationResponse{
		ContainerResponses: []*v1beta1.ContainerPreferredAllocationResponse{{DeviceIDs: all[len(all)-1:]}},
	}, nil
}

func (p *plugin) Allocate(_ context.Context, req *v1beta1.AllocateRequest) (*v1beta1.AllocateResponse, error) {
	devices := strings.Join(req.GetContainerRequests()[0].GetDevicesIds(), "+")
	p.called("allocate " + devices)
	return &v1beta1.AllocateResponse{
		ContainerResponses: []*v1beta1.ContainerAllocateResponse{{Envs: map[string]string{"THING": devices}}},
	}, nil
}

func (p *plugin) PreStartContainer(
	_ context.Context, req *v1beta1.PreStartContainerRequest,
) (*v1beta1.PreStartContainerResponse, error) {
	p.called("start " + strings.Join(req.GetDevicesIds(), "+"))
	return &v1beta1.PreStartContainerResponse{}, nil
}

// serve serves the plugin until the test ends.
func (p *plugin) serve(t *testing.T, k *Kubelet) {
	t.Helper()
	listener, err := net.Listen("unix", k.PluginDir()+"/thing.sock")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	v1beta1.RegisterDevicePluginServer(server, p)
	go server.Serve(listener) //nolint:errcheck // ends with Stop
	t.Cleanup(server.Stop)
}

func register(t *testing.T, k *Kubelet) error {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+k.PluginDir()+"/kubelet.sock",
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = v1beta1.NewRegistrationClient(conn).Register(t.Context(), &v1beta1.RegisterRequest{
		Version: v1beta1.Version, Endpoint: "thing.sock", ResourceName: resource,
	})
	return err
}

func start(t *testing.T) (*Kubelet, *plugin) {
	t.Helper()
	dir, err := os.MkdirTemp("", "kubelet") // t.TempDir is too long for a socket path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	k, err := Start(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Stop() })
	p := &plugin{}
	p.serve(t, k)
	if err := errors.Join(register(t, k), k.Await(t.Context(), resource, 3)); err != nil {
		t.Fatal(err)
	}
	return k, p
}

// TestPluginIsCalledInTheOrderOfARealKubelet, and only once for a pod.
func TestPluginIsCalledInTheOrderOfARealKubelet(t *testing.T) {
	k, p := start(t)
	pod := Pod{Namespace: "n", Name: "a", Containers: []Container{
		{Name: "init", Init: true, Limit: 1}, {Name: "main", Limit: 2}, {Name: "side"},
	}}
	for range 2 {
		containers, err := k.Admit(t.Context(), resource, pod)
		if err != nil || containers[0].Envs["THING"] != "t-2" || containers[1].Envs["THING"] != "t-1+t-2" ||
			containers[2].Envs != nil {
			t.Fatalf("containers %+v, %v", containers, err)
		}
	}
	if err := errors.Join(k.StartContainer(t.Context(), "n", "a", "main"),
		k.StartContainer(t.Context(), "n", "a", "side")); err != nil {
		t.Fatal(err)
	}
	want := "options, list, prefer, allocate t-2, prefer, allocate t-1+t-2, start t-1+t-2"
	if got := strings.Join(p.calls, ", "); got != want {
		t.Errorf("calls: %s\nwant:  %s", got, want)
	}
}

// TestAdmissionFailsWhenTooFewDevicesAreFree, and the pod is not listed.
func TestAdmissionFailsWhenTooFewDevicesAreFree(t *testing.T) {
	k, _ := start(t)
	for range 2 {
		_, err := k.Admit(t.Context(), resource, Pod{
			Name:       "a",
			Containers: []Container{{Name: "c", Limit: 2}, {Name: "d", Limit: 2}},
		})
		if !errors.Is(err, ErrUnexpectedAdmission) || len(k.Pods()) != 0 {
			t.Errorf("%v, pods %v", err, k.Pods())
		}
	}
}

func TestRestartRemovesSocketsAndHealthButKeepsPods(t *testing.T) {
	k, p := start(t)
	pod := Pod{Namespace: "n", Name: "a", Containers: []Container{{Name: "c", Limit: 1}}}
	before, err := k.Admit(t.Context(), resource, pod)
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Restart(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(k.PluginDir() + "/thing.sock"); err == nil {
		t.Error("the plugin's socket outlives the restart")
	}
	if capacity, allocatable := k.Capacity(resource); capacity != 3 || allocatable != 0 {
		t.Errorf("capacity %d, allocatable %d", capacity, allocatable)
	}
	if _, err := k.Admit(t.Context(), resource, Pod{
		Name:       "b",
		Containers: []Container{{Name: "c", Limit: 1}},
	}); err == nil {
		t.Error("allocated by a disconnected plugin")
	}
	if err := k.StartContainer(t.Context(), "n", "a", "c"); err == nil {
		t.Error("a container started without its plugin")
	}
	if after, err := k.Admit(t.Context(), resource, pod); err != nil ||
		after[0].Envs["THING"] != before[0].Envs["THING"] {
		t.Errorf("after the restart: %v, %v", after, err)
	}
	p.serve(t, k)
	k.Refuse(errors.New("not now"))
	if err := register(t, k); err == nil {
		t.Error("a refused plugin is registered")
	}
	k.Refuse(nil)
	if err := errors.Join(register(t, k), k.Await(t.Context(), resource, 3)); err != nil || k.Registrations() != 2 {
		t.Errorf("%v, %d registrations", err, k.Registrations())
	}
}
