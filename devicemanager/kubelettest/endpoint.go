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

// registration serves plugins that come.
type registration struct {
	v1beta1.UnimplementedRegistrationServer
	kubelet *Kubelet
}

// connectTimeout is how long a plugin may take to be reached and to tell its options.
const connectTimeout = 10 * time.Second

// Register connects to the plugin, asks for its options, and only then answers; then it follows the plugin's devices.
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
		return nil, status.Errorf(codes.InvalidArgument, "endpoint %q is no name of a socket", req.GetEndpoint())
	}
	e, err := connect(ctx, filepath.Join(k.pluginDir, req.GetEndpoint()))
	if err != nil {
		return nil, status.Errorf(codes.Unavailable, "connect to plugin: %v", err)
	}
	return &v1beta1.Empty{}, k.adopt(req.GetResourceName(), e)
}

// endpoint is a plugin that registered. Its devices are the kubelet's to lock.
type endpoint struct {
	conn    *grpc.ClientConn // nil: it is gone
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

// adopt takes the plugin in place of the one that served the resource before.
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

// follow keeps the devices of a plugin until its stream ends; then none of them is healthy any more.
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

// LeastOffered is how many devices the shortest list had that ever came for the resource.
func (k *Kubelet) LeastOffered(resource string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.least[resource]
}

// Disconnect breaks the connection to the plugin, with no other sign; a real kubelet does not connect again by itself.
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

// withoutConnection is what is left of a plugin that went away: its devices, none of them healthy.
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
