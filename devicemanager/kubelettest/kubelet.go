// Package kubelettest is a fake kubelet that speaks the real device plugin and PodResources protocols.
package kubelettest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"

	"google.golang.org/grpc"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// Kubelet is the fake kubelet of one node. The content of a real kubelet's checkpoint (the devices of each container
// and the answers of the plugin) survives Stop.
type Kubelet struct {
	pluginDir, podResources string

	admission sync.Mutex // pods are admitted one at a time

	mu            sync.Mutex
	serving       []*grpc.Server       // empty while it is stopped
	endpoints     map[string]*endpoint // by resource
	pods          []*admitted
	refusal       error
	get           error
	registrations int
	least         map[string]int // length of the shortest list so far, by resource
	changed       chan struct{}  // closed and replaced at each change of the devices
}

// Start starts a kubelet with its sockets in dir/device-plugins and dir/pod-resources.
func Start(dir string) (*Kubelet, error) {
	k := &Kubelet{
		pluginDir:    filepath.Join(dir, "device-plugins"),
		podResources: filepath.Join(dir, "pod-resources", "kubelet.sock"),
		endpoints:    make(map[string]*endpoint),
		least:        make(map[string]int),
		changed:      make(chan struct{}),
	}
	return k, k.Start()
}

// PluginDir returns the directory of the plugins' sockets.
func (k *Kubelet) PluginDir() string { return k.pluginDir }

// PodResources returns the path of the PodResources socket.
func (k *Kubelet) PodResources() string { return k.podResources }

// Start starts a stopped kubelet: it removes all sockets from the plugin directory, as a real one does, and
// creates its own.
func (k *Kubelet) Start() error {
	for _, dir := range []string{k.pluginDir, filepath.Dir(k.podResources)} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("start kubelet: %w", err)
		}
	}
	if err := removeSockets(k.pluginDir); err != nil {
		return err
	}
	registry := grpc.NewServer()
	lister := grpc.NewServer()
	v1beta1.RegisterRegistrationServer(registry, &registration{kubelet: k})
	podresources.RegisterPodResourcesListerServer(lister, &resources{kubelet: k})
	for socket, server := range map[string]*grpc.Server{
		filepath.Join(k.pluginDir, "kubelet.sock"): registry, k.podResources: lister,
	} {
		if err := k.serve(socket, server); err != nil {
			return errors.Join(err, k.Stop())
		}
	}
	return nil
}

func (k *Kubelet) serve(socket string, server *grpc.Server) error {
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("start kubelet: %w", err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return fmt.Errorf("start kubelet: %w", err)
	}
	listener.SetUnlinkOnClose(false) // a real kubelet leaves its sockets
	k.mu.Lock()
	defer k.mu.Unlock()
	k.serving = append(k.serving, server)
	go server.Serve(listener) //nolint:errcheck // ends with Stop
	return nil
}

// Stop ends all connections; the sockets stay.
func (k *Kubelet) Stop() error {
	k.mu.Lock()
	serving := k.serving
	endpoints := k.endpoints
	k.serving = nil
	k.endpoints = make(map[string]*endpoint)
	for resource, e := range endpoints {
		k.endpoints[resource] = e.withoutConnection()
	}
	k.mu.Unlock()
	for _, server := range serving {
		server.Stop()
	}
	var errs []error
	for _, e := range endpoints {
		errs = append(errs, e.close())
	}
	return errors.Join(errs...)
}

// Restart stops and starts.
func (k *Kubelet) Restart() error { return errors.Join(k.Stop(), k.Start()) }

// Wipe removes all sockets from the plugin directory, including its own, while kubelet keeps running.
func (k *Kubelet) Wipe() error { return removeSockets(k.pluginDir) }

// Refuse makes registrations fail with err, nil resets that.
func (k *Kubelet) Refuse(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.refusal = err
}

// FailGet makes PodResources.Get fail with err, as in a kubelet without that method; nil resets that.
func (k *Kubelet) FailGet(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.get = err
}

// Registrations returns the number of accepted registrations.
func (k *Kubelet) Registrations() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.registrations
}

// Capacity returns the number of devices of the resource and the number of healthy ones.
func (k *Kubelet) Capacity(resource string) (capacity, allocatable int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.endpoints[resource]
	if e == nil {
		return 0, 0
	}
	return len(e.devices), len(e.healthy())
}

// Await waits until the given number of devices is allocatable.
func (k *Kubelet) Await(ctx context.Context, resource string, allocatable int) error {
	for {
		k.mu.Lock()
		changed := k.changed
		k.mu.Unlock()
		_, have := k.Capacity(resource)
		if have == allocatable {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%d devices %s are allocatable, want %d: %w", have, resource, allocatable,
				context.Cause(ctx))
		}
	}
}

// announceLocked notifies all calls of Await.
func (k *Kubelet) announceLocked() {
	close(k.changed)
	k.changed = make(chan struct{})
}

// removeSockets removes the sockets of a directory and leaves other files.
func removeSockets(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("remove sockets of plugins: %w", err)
	}
	for _, e := range entries {
		if e.Type() != fs.ModeSocket {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove sockets of plugins: %w", err)
		}
	}
	return nil
}

// resources is the PodResources service.
type resources struct {
	podresources.UnimplementedPodResourcesListerServer
	kubelet *Kubelet
}

// List returns all admitted pods, including those without devices.
func (r *resources) List(
	context.Context, *podresources.ListPodResourcesRequest,
) (*podresources.ListPodResourcesResponse, error) {
	resp := &podresources.ListPodResourcesResponse{}
	r.kubelet.mu.Lock()
	defer r.kubelet.mu.Unlock()
	for _, a := range r.kubelet.pods {
		resp.PodResources = append(resp.PodResources, a.resources())
	}
	return resp, nil
}

// Get returns one pod. It fails for an unknown pod.
func (r *resources) Get(
	_ context.Context, req *podresources.GetPodResourcesRequest,
) (*podresources.GetPodResourcesResponse, error) {
	r.kubelet.mu.Lock()
	defer r.kubelet.mu.Unlock()
	if r.kubelet.get != nil {
		return nil, r.kubelet.get
	}
	for _, a := range r.kubelet.pods {
		if a.Namespace == req.GetPodNamespace() && a.Name == req.GetPodName() {
			return &podresources.GetPodResourcesResponse{PodResources: a.resources()}, nil
		}
	}
	return nil, fmt.Errorf("pod %s in namespace %s not found", req.GetPodName(), req.GetPodNamespace())
}

// resources returns the devices of a pod by container, without init containers.
func (a *admitted) resources() *podresources.PodResources {
	p := &podresources.PodResources{Name: a.Name, Namespace: a.Namespace}
	for _, c := range a.Containers {
		if c.Init {
			continue
		}
		shown := &podresources.ContainerResources{Name: c.Name}
		for resource, devices := range c.Foreign {
			shown.Devices = append(shown.Devices, &podresources.ContainerDevices{
				ResourceName: resource,
				DeviceIds:    devices,
			})
		}
		if len(c.Devices) > 0 {
			shown.Devices = append(shown.Devices, &podresources.ContainerDevices{
				ResourceName: a.resource,
				DeviceIds:    c.Devices,
			})
		}
		p.Containers = append(p.Containers, shown)
	}
	return p
}
