package kubelettest

import (
	"context"
	"fmt"

	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// resources serves PodResources.
type resources struct {
	podresources.UnimplementedPodResourcesListerServer
	kubelet *Kubelet
}

// List lists all pods that are admitted, those without devices too.
func (r *resources) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	resp := &podresources.ListPodResourcesResponse{}
	r.kubelet.mu.Lock()
	defer r.kubelet.mu.Unlock()
	for _, a := range r.kubelet.pods {
		resp.PodResources = append(resp.PodResources, a.resources())
	}
	return resp, nil
}

// Get lists one pod; an unknown one is an error.
func (r *resources) Get(_ context.Context, req *podresources.GetPodResourcesRequest) (*podresources.GetPodResourcesResponse, error) {
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

// resources are those of a pod, in the order of its containers; init containers are not shown.
func (a *admitted) resources() *podresources.PodResources {
	p := &podresources.PodResources{Name: a.Name, Namespace: a.Namespace}
	for _, c := range a.Containers {
		if c.Init {
			continue
		}
		shown := &podresources.ContainerResources{Name: c.Name}
		for resource, devices := range c.Foreign {
			shown.Devices = append(shown.Devices, &podresources.ContainerDevices{ResourceName: resource, DeviceIds: devices})
		}
		if len(c.Devices) > 0 {
			shown.Devices = append(shown.Devices, &podresources.ContainerDevices{ResourceName: a.resource, DeviceIds: c.Devices})
		}
		p.Containers = append(p.Containers, shown)
	}
	return p
}
