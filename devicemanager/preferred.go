package devicemanager

import (
	"cmp"
	"context"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// GetPreferredAllocation prefers the lowest numbers: devices are all alike, and so people find the same ones again.
func (p *plugin) GetPreferredAllocation(_ context.Context, req *v1beta1.PreferredAllocationRequest) (*v1beta1.PreferredAllocationResponse, error) {
	resp := &v1beta1.PreferredAllocationResponse{}
	for _, c := range req.GetContainerRequests() {
		devices := preferred(c)
		if len(devices) < int(c.GetAllocationSize()) {
			return nil, status.Errorf(codes.InvalidArgument, "%d devices wanted of %d available", c.GetAllocationSize(), len(devices))
		}
		resp.ContainerResponses = append(resp.ContainerResponses, &v1beta1.ContainerPreferredAllocationResponse{DeviceIDs: devices})
	}
	return resp, nil
}

// preferred are those that must be included and, up to the size, the lowest of the others.
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
