package devicemanager

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/weftnet/weft/pod"
)

// Container annotations, which a runtime forwards if it is configured to. They do not contain the secret.
const (
	annotationHostSocket      = "io.contivpp.memif.socket.host"
	annotationContainerSocket = "io.contivpp.memif.socket.container"
)

// undoTimeout bounds the release of the allocations of a failed request.
const undoTimeout = 10 * time.Second

// plugin is the device plugin service that kubelet calls.
type plugin struct {
	v1beta1.UnimplementedDevicePluginServer
	manager *Manager
	streams *streams
}

// options asks kubelet to call GetPreferredAllocation, and PreStartContainer because the directory that the container
// mounts may be lost.
func options() *v1beta1.DevicePluginOptions {
	return &v1beta1.DevicePluginOptions{PreStartRequired: true, GetPreferredAllocationAvailable: true}
}

// GetDevicePluginOptions returns the options. Kubelet asks for them first.
func (p *plugin) GetDevicePluginOptions(context.Context, *v1beta1.Empty) (*v1beta1.DevicePluginOptions, error) {
	return options(), nil
}

// ListAndWatch sends the device list initially and after each change, until kubelet or the server ends the stream.
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

// Allocate makes an allocation for each container of the request. If one fails, it releases the others.
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

// allocate makes one allocation in the event loop.
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

// takeBack releases the allocations of a failed request, which kubelet does not learn.
func (m *Manager) takeBack(ctx context.Context, made []*pod.Allocation) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	for _, a := range made {
		m.release(ctx, a.ID, "the allocation of another container of the request failed")
	}
}

// release releases an allocation in the event loop. The collector finds it later if that fails.
func (m *Manager) release(ctx context.Context, id, reason string) bool {
	_, err := m.config.Loop.Do(ctx, &pod.ReleaseDevice{Allocation: id, Reason: reason})
	if err != nil {
		m.config.Log.Warn("allocation not released", "allocation", id, "err", err)
		return false
	}
	m.config.Log.Info("allocation released", "allocation", id, "reason", reason)
	return true
}

// response returns the environment, mount and annotations of the container.
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

// PreStartContainer recreates the directory that the container is about to mount if it is lost.
func (p *plugin) PreStartContainer(ctx context.Context, req *v1beta1.PreStartContainerRequest) (*v1beta1.PreStartContainerResponse, error) {
	m := p.manager
	holders := m.holders(req.GetDevicesIds())
	if len(holders) == 0 {
		return nil, status.Errorf(codes.FailedPrecondition,
			"devices %s: this node lost their allocation: delete the pod and create it again", strings.Join(req.GetDevicesIds(), ", "))
	}
	if err := m.ensure(ctx, holders); err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	return &v1beta1.PreStartContainerResponse{}, nil
}

// GetPreferredAllocation prefers the lowest numbers. All devices are equal; low numbers make the choice predictable.
func (p *plugin) GetPreferredAllocation(_ context.Context, req *v1beta1.PreferredAllocationRequest) (*v1beta1.PreferredAllocationResponse, error) {
	resp := &v1beta1.PreferredAllocationResponse{}
	for _, c := range req.GetContainerRequests() {
		devices := preferred(c)
		if len(devices) < int(c.GetAllocationSize()) {
			return nil, status.Errorf(codes.InvalidArgument, "%d devices requested, %d available", c.GetAllocationSize(), len(devices))
		}
		resp.ContainerResponses = append(resp.ContainerResponses, &v1beta1.ContainerPreferredAllocationResponse{DeviceIDs: devices})
	}
	return resp, nil
}

// preferred returns the devices that must be included and the lowest available ones, up to the requested size.
func preferred(c *v1beta1.ContainerPreferredAllocationRequest) []string {
	devices := slices.Clone(c.GetMustIncludeDeviceIDs())
	others := slices.SortedFunc(slices.Values(c.GetAvailableDeviceIDs()), byNumber)
	for _, device := range others {
		if len(devices) < int(c.GetAllocationSize()) && !slices.Contains(devices, device) {
			devices = append(devices, device)
		}
	}
	slices.SortFunc(devices, byNumber)
	return devices
}

func byNumber(a, b string) int {
	x, _ := deviceNumber(a)
	y, _ := deviceNumber(b)
	return cmp.Or(cmp.Compare(x, y), cmp.Compare(a, b))
}

// health is the common health of all devices. It notifies the streams of a change.
type health struct {
	count int

	mu      sync.Mutex
	healthy bool
	changed chan struct{} // closed and replaced when healthy changes
}

func newHealth(count int) *health {
	return &health{count: count, healthy: true, changed: make(chan struct{})}
}

// set sets the health and reports whether it changed.
func (h *health) set(healthy bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.healthy == healthy {
		return false
	}
	h.healthy = healthy
	close(h.changed)
	h.changed = make(chan struct{})
	return true
}

// list returns the list of devices and a channel that is closed when the list changes. It always contains all devices:
// kubelet would remove a missing one from the node.
func (h *health) list() (*v1beta1.ListAndWatchResponse, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	state := v1beta1.Unhealthy
	if h.healthy {
		state = v1beta1.Healthy
	}
	list := &v1beta1.ListAndWatchResponse{}
	for n := range h.count {
		list.Devices = append(list.Devices, &v1beta1.Device{ID: deviceID(n), Health: state})
	}
	return list, h.changed
}

const devicePrefix = "memif-"

// deviceID returns the id of device n, counted from 0.
func deviceID(n int) string { return devicePrefix + strconv.Itoa(n) }

// deviceNumber is the inverse of deviceID.
func deviceNumber(id string) (int, bool) {
	digits, ok := strings.CutPrefix(id, devicePrefix)
	n, err := strconv.Atoi(digits)
	return n, ok && err == nil && n >= 0 && deviceID(n) == id
}
