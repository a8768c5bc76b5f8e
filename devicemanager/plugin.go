package devicemanager

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

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

// plugin is the device plugin service that kubelet calls.
type plugin struct {
	v1beta1.UnimplementedDevicePluginServer
	health   *health
	streams  *streams
	requests *requests
	table    *table
	disk     *disk
	mounts   Mounts
	log      *slog.Logger
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
		list, changed := p.health.list()
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
	defer p.requests.begin()()
	resp := &v1beta1.AllocateResponse{}
	var made []*pod.Allocation
	for _, c := range req.GetContainerRequests() {
		a, err := p.requests.allocate(ctx, c.GetDevicesIds())
		if err != nil {
			p.log.Warn("devices not allocated", "devices", strings.Join(c.GetDevicesIds(), " "), "err", err)
			p.requests.takeBack(ctx, made)
			return nil, status.Error(codes.Unavailable, err.Error())
		}
		made = append(made, a)
		resp.ContainerResponses = append(resp.ContainerResponses, p.mounts.response(a))
	}
	return resp, nil
}

// response returns the environment, mount and annotations of the container.
func (m Mounts) response(a *pod.Allocation) *v1beta1.ContainerAllocateResponse {
	socket := m.Container + "/memif.sock"
	resp := &v1beta1.ContainerAllocateResponse{
		Envs: map[string]string{"MEMIF_SOCKET": socket},
		Mounts: []*v1beta1.Mount{
			{ContainerPath: m.Container, HostPath: a.Directory, ReadOnly: !m.Writable},
		},
		Annotations: map[string]string{
			annotationHostSocket:      a.SocketPath(),
			annotationContainerSocket: socket,
		},
	}
	if !m.NoSecretEnv {
		resp.Envs["MEMIF_SECRET"] = string(a.Secret)
	}
	return resp
}

// PreStartContainer recreates the directory that the container is about to mount if it is lost.
func (p *plugin) PreStartContainer(
	ctx context.Context, req *v1beta1.PreStartContainerRequest,
) (*v1beta1.PreStartContainerResponse, error) {
	holders := p.table.holders(req.GetDevicesIds())
	if len(holders) == 0 {
		return nil, status.Errorf(codes.FailedPrecondition,
			"devices %s: this node lost their allocation: delete the pod and create it again",
			strings.Join(req.GetDevicesIds(), ", "))
	}
	if err := p.disk.ensure(ctx, holders); err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	return &v1beta1.PreStartContainerResponse{}, nil
}

// GetPreferredAllocation prefers the lowest numbers. All devices are equal; low numbers make the choice predictable.
func (p *plugin) GetPreferredAllocation(
	_ context.Context, req *v1beta1.PreferredAllocationRequest,
) (*v1beta1.PreferredAllocationResponse, error) {
	resp := &v1beta1.PreferredAllocationResponse{}
	for _, c := range req.GetContainerRequests() {
		devices := preferred(c)
		if len(devices) < int(c.GetAllocationSize()) {
			return nil, status.Errorf(codes.InvalidArgument, "%d devices requested, %d available",
				c.GetAllocationSize(), len(devices))
		}
		resp.ContainerResponses = append(resp.ContainerResponses, &v1beta1.ContainerPreferredAllocationResponse{
			DeviceIDs: devices,
		})
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
