package devicemanager

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/weftnet/weft/pod"
)

// Annotations of a container that runtimes pass on where they are configured so. The secret is in none.
const (
	annotationHostSocket      = "io.contivpp.memif.socket.host"
	annotationContainerSocket = "io.contivpp.memif.socket.container"
)

// undoTimeout is for taking back what a request of kubelet's had before it failed.
const undoTimeout = 10 * time.Second

// plugin is what kubelet calls.
type plugin struct {
	v1beta1.UnimplementedDevicePluginServer
	manager *Manager
	streams *streams
}

// options ask kubelet to prefer our choice, and to call before each start of a container, for the directory that it
// mounts may be lost.
func options() *v1beta1.DevicePluginOptions {
	return &v1beta1.DevicePluginOptions{PreStartRequired: true, GetPreferredAllocationAvailable: true}
}

// GetDevicePluginOptions answers the first question of a kubelet.
func (p *plugin) GetDevicePluginOptions(context.Context, *v1beta1.Empty) (*v1beta1.DevicePluginOptions, error) {
	return options(), nil
}

// ListAndWatch sends the devices, and again whenever they change, until kubelet or this server ends the stream.
func (p *plugin) ListAndWatch(_ *v1beta1.Empty, stream v1beta1.DevicePlugin_ListAndWatchServer) error {
	defer p.streams.open()()
	for {
		list, changed := p.manager.health.list()
		if err := stream.Send(list); err != nil {
			return fmt.Errorf("send devices: %w", err)
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return nil
		}
	}
}

// Allocate makes an allocation for each container of the request, or none.
func (p *plugin) Allocate(ctx context.Context, req *v1beta1.AllocateRequest) (*v1beta1.AllocateResponse, error) {
	p.manager.unanswered.Add(1)
	defer p.manager.unanswered.Add(-1)
	resp := &v1beta1.AllocateResponse{}
	var made []*pod.Allocation
	for _, c := range req.GetContainerRequests() {
		a, err := p.manager.allocate(ctx, c.GetDevicesIds())
		if err != nil {
			p.manager.config.Log.Warn("devices not allocated", "devices", strings.Join(c.GetDevicesIds(), " "), "err", err)
			p.manager.takeBack(ctx, made)
			return nil, status.Error(codes.Unavailable, err.Error())
		}
		made = append(made, a)
		resp.ContainerResponses = append(resp.ContainerResponses, p.manager.config.response(a))
	}
	return resp, nil
}

// allocate has the loop make one allocation.
func (m *Manager) allocate(ctx context.Context, devices []string) (*pod.Allocation, error) {
	if err := m.prepare(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, m.config.AllocateTimeout)
	defer cancel()
	ev := &pod.AllocateDevice{Devices: devices}
	rec, err := m.config.Loop.Do(ctx, ev)
	if err != nil {
		return nil, err
	}
	m.config.Log.Info("devices allocated", "devices", strings.Join(devices, " "), "allocation", ev.Allocation.ID, "took", rec.Took)
	return ev.Allocation, nil
}

// takeBack releases what earlier containers of a failed request got: kubelet is not told of it.
func (m *Manager) takeBack(ctx context.Context, made []*pod.Allocation) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	for _, a := range made {
		m.release(ctx, a.ID, "another container of the request got none")
	}
}

// release has the loop release an allocation; one that is left is found by the collection.
func (m *Manager) release(ctx context.Context, id, reason string) bool {
	_, err := m.config.Loop.Do(ctx, &pod.ReleaseDevice{Allocation: id, Reason: reason})
	if err != nil {
		m.config.Log.Warn("allocation not released", "allocation", id, "err", err)
		return false
	}
	m.config.Log.Info("allocation released", "allocation", id, "reason", reason)
	return true
}

// response is what kubelet makes of an allocation for its container.
func (c Config) response(a *pod.Allocation) *v1beta1.ContainerAllocateResponse {
	socket := c.ContainerPath + "/memif.sock"
	resp := &v1beta1.ContainerAllocateResponse{
		Envs:   map[string]string{"MEMIF_SOCKET": socket},
		Mounts: []*v1beta1.Mount{{ContainerPath: c.ContainerPath, HostPath: a.Directory, ReadOnly: !c.Writable}},
		Annotations: map[string]string{
			annotationHostSocket:      a.SocketPath(),
			annotationContainerSocket: socket,
		},
	}
	if !c.NoSecretEnv {
		resp.Envs["MEMIF_SECRET"] = string(a.Secret)
	}
	return resp
}

// PreStartContainer makes what the container is about to mount, should it be lost.
func (p *plugin) PreStartContainer(ctx context.Context, req *v1beta1.PreStartContainerRequest) (*v1beta1.PreStartContainerResponse, error) {
	m := p.manager
	holders := m.holders(req.GetDevicesIds())
	if len(holders) == 0 {
		return nil, status.Errorf(codes.FailedPrecondition,
			"devices %s: this node does not know who has them: delete the pod and create it again", strings.Join(req.GetDevicesIds(), ", "))
	}
	if err := m.ensure(ctx, holders); err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	return &v1beta1.PreStartContainerResponse{}, nil
}
