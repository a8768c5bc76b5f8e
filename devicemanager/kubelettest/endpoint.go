package kubelettest

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// registration is kubelet's registration service.
type registration struct {
	v1beta1.UnimplementedRegistrationServer
	kubelet *Kubelet
}

// connectTimeout bounds connecting to a plugin and reading its options.
const connectTimeout = 10 * time.Second

// Register connects to the plugin, reads its options and then answers. Then it watches the plugin's devices.
func (r *registration) Register(ctx context.Context, req *v1beta1.RegisterRequest) (*v1beta1.Empty, error) {
	k := r.kubelet
	k.mu.Lock()
	refusal := k.refusal
	k.mu.Unlock()
	switch {
	case refusal != nil:
		return nil, refusal
	case req.GetVersion() != v1beta1.Version:
		return nil, status.Errorf(codes.InvalidArgument, "version %q is not supported", req.GetVersion())
	case req.GetEndpoint() == "" || filepath.Base(req.GetEndpoint()) != req.GetEndpoint():
		return nil, status.Errorf(codes.InvalidArgument, "endpoint %q is not a socket name", req.GetEndpoint())
	}
	e, err := connect(ctx, filepath.Join(k.pluginDir, req.GetEndpoint()))
	if err != nil {
		return nil, status.Errorf(codes.Unavailable, "connect to plugin: %v", err)
	}
	return &v1beta1.Empty{}, k.adopt(req.GetResourceName(), e)
}

// endpoint is a registered plugin. Kubelet.mu guards its devices.
type endpoint struct {
	conn    *grpc.ClientConn // nil when the plugin is gone
	client  v1beta1.DevicePluginClient
	options *v1beta1.DevicePluginOptions
	cancel  context.CancelFunc
	ended   chan struct{}
	devices []*v1beta1.Device
}

func connect(ctx context.Context, socket string) (*endpoint, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	e := &endpoint{conn: conn, client: v1beta1.NewDevicePluginClient(conn), ended: make(chan struct{})}
	e.options, err = e.client.GetDevicePluginOptions(ctx, &v1beta1.Empty{})
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("ask for options: %w", err)
	}
	return e, nil
}

// adopt replaces the previous plugin of the resource.
func (k *Kubelet) adopt(resource string, e *endpoint) error {
	ctx, cancel := context.WithCancel(context.Background())
	e.cancel = cancel
	k.mu.Lock()
	before := k.endpoints[resource]
	if k.serving == nil {
		k.mu.Unlock()
		cancel()
		close(e.ended)
		return e.close()
	}
	if before != nil {
		e.devices = before.withoutConnection().devices
	}
	k.endpoints[resource] = e
	k.registrations++
	k.mu.Unlock()
	go k.follow(ctx, resource, e)
	if before != nil {
		return before.close()
	}
	return nil
}

// follow updates the devices of a plugin until its stream ends, and then marks them unhealthy.
func (k *Kubelet) follow(ctx context.Context, resource string, e *endpoint) {
	defer close(e.ended)
	stream, err := e.client.ListAndWatch(ctx, &v1beta1.Empty{})
	for err == nil {
		var list *v1beta1.ListAndWatchResponse
		if list, err = stream.Recv(); err == nil {
			k.offered(func() {
				e.devices = list.GetDevices()
				if least, known := k.least[resource]; !known || len(e.devices) < least {
					k.least[resource] = len(e.devices)
				}
			})
		}
	}
	k.offered(func() { e.devices = e.withoutConnection().devices })
}

func (k *Kubelet) offered(change func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change()
	k.announceLocked()
}

// LeastOffered returns the length of the shortest device list of the resource so far.
func (k *Kubelet) LeastOffered(resource string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.least[resource]
}

// Disconnect breaks the connection to the plugin silently. A real kubelet does not reconnect by itself.
func (k *Kubelet) Disconnect(resource string) error {
	k.mu.Lock()
	e := k.endpoints[resource]
	if e == nil {
		k.mu.Unlock()
		return nil
	}
	k.endpoints[resource] = e.withoutConnection()
	k.mu.Unlock()
	return e.close()
}

// withoutConnection returns a disconnected endpoint with the same devices, all unhealthy.
func (e *endpoint) withoutConnection() *endpoint {
	left := &endpoint{options: e.options}
	for _, d := range e.devices {
		left.devices = append(left.devices, &v1beta1.Device{ID: d.GetID(), Health: v1beta1.Unhealthy})
	}
	return left
}

func (e *endpoint) close() error {
	if e.conn == nil {
		return nil
	}
	if e.cancel != nil {
		e.cancel()
	}
	<-e.ended
	return e.conn.Close()
}

func (e *endpoint) healthy() []string {
	var ids []string
	for _, d := range e.devices {
		if d.GetHealth() == v1beta1.Healthy {
			ids = append(ids, d.GetID())
		}
	}
	return ids
}
