// Package kubelettest is a stand-in for kubelet, as a device plugin and a CNI plugin see it, over the real protocols.
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
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Kubelet is one node's. What a real one keeps in its checkpoint (who has which device, and what the plugin answered)
// survives Stop.
type Kubelet struct {
	pluginDir, podResources string

	admission sync.Mutex // pods are admitted one at a time

	mu            sync.Mutex
	serving       []*grpc.Server       // none while it is stopped
	endpoints     map[string]*endpoint // by resource
	pods          []*admitted
	refusal       error
	get           error
	registrations int
	least         map[string]int // devices of the shortest list that came, by resource
	changed       chan struct{}  // closed at each change of what plugins offer
}

// Start starts a kubelet that keeps its sockets below dir: in device-plugins, with those of plugins, and in pod-resources.
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

// PluginDir is where plugins have their sockets.
func (k *Kubelet) PluginDir() string { return k.pluginDir }

// PodResources is the socket for questions about pods.
func (k *Kubelet) PodResources() string { return k.podResources }

// Start starts a stopped kubelet: it removes all sockets from the directory of plugins, as a real one does, and makes its
// own.
func (k *Kubelet) Start() error {
	for _, dir := range []string{k.pluginDir, filepath.Dir(k.podResources)} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("start kubelet: %w", err)
		}
	}
	if err := removeSockets(k.pluginDir); err != nil {
		return err
	}
	registry, lister := grpc.NewServer(), grpc.NewServer()
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
	listener.SetUnlinkOnClose(false) // a real one leaves its sockets when it stops
	k.mu.Lock()
	defer k.mu.Unlock()
	k.serving = append(k.serving, server)
	go server.Serve(listener) //nolint:errcheck // it ends when it is stopped
	return nil
}

// Stop ends all connections; the sockets stay.
func (k *Kubelet) Stop() error {
	k.mu.Lock()
	serving, endpoints := k.serving, k.endpoints
	k.serving, k.endpoints = nil, make(map[string]*endpoint)
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

// Wipe removes everything from the directory of plugins, its own socket too, while it goes on.
func (k *Kubelet) Wipe() error { return removeSockets(k.pluginDir) }

// Refuse makes registrations fail with err; nil lets them succeed again.
func (k *Kubelet) Refuse(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.refusal = err
}

// FailGet makes Get of PodResources fail with err, as kubelets do that have none, or have it switched off; nil lets it
// work again.
func (k *Kubelet) FailGet(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.get = err
}

// Registrations is how many it accepted.
func (k *Kubelet) Registrations() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.registrations
}

// Capacity is how many devices of the resource the node has, and how many of them healthy and served: what a scheduler
// may give.
func (k *Kubelet) Capacity(resource string) (capacity, allocatable int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.endpoints[resource]
	if e == nil {
		return 0, 0
	}
	return len(e.devices), len(e.healthy())
}

// Await waits until so many devices of the resource are allocatable.
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
			return fmt.Errorf("%d devices %s are allocatable, want %d: %w", have, resource, allocatable, context.Cause(ctx))
		}
	}
}

// announceLocked wakes those who wait for a change.
func (k *Kubelet) announceLocked() {
	close(k.changed)
	k.changed = make(chan struct{})
}

// removeSockets removes all sockets of a directory, and leaves other files.
func removeSockets(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("wipe directory of plugins: %w", err)
	}
	for _, e := range entries {
		if e.Type() != fs.ModeSocket {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("wipe directory of plugins: %w", err)
		}
	}
	return nil
}
