package kubelettest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Pod is a pod for kubelet to run.
type Pod struct {
	Namespace, Name string
	Containers      []Container // init containers first
}

// Container is one container of a pod. Admit fills in the plugin's answer.
type Container struct {
	Name  string
	Init  bool // later containers may reuse its devices
	Limit int  // number of devices

	Devices     []string
	Envs        map[string]string
	Mounts      []*v1beta1.Mount
	Annotations map[string]string

	Foreign map[string][]string // devices of other plugins, by resource
}

// admitted is a pod in the checkpoint.
type admitted struct {
	Pod
	resource string
}

// preStartTimeout is the timeout of a real kubelet.
const preStartTimeout = v1beta1.KubeletPreStartContainerRPCTimeoutInSecs * time.Second

// ErrUnexpectedAdmission is the permanent failure of a pod when the node lacks devices.
var ErrUnexpectedAdmission = errors.New("UnexpectedAdmissionError")

// Admit allocates devices of the resource to each container of the pod that has a limit, as a real kubelet does before
// it creates the sandbox, and returns the containers with their devices. For an admitted pod it returns the same result
// without calling the plugin.
func (k *Kubelet) Admit(ctx context.Context, resource string, pod Pod) ([]Container, error) {
	k.admission.Lock()
	defer k.admission.Unlock()
	if had := k.find(pod.Namespace, pod.Name); had != nil {
		return slices.Clone(had.Containers), nil
	}
	a := &admitted{Pod: pod, resource: resource}
	a.Containers = nil
	k.mu.Lock()
	k.pods = append(k.pods, a) // kubelet lists the pod from now on, without devices
	k.mu.Unlock()
	var reusable []string
	for _, c := range pod.Containers {
		if c.Limit > 0 {
			if err := k.allocate(ctx, a, &c, reusable); err != nil {
				k.Remove(pod.Namespace, pod.Name)
				return nil, fmt.Errorf("%w: container %s: %w", ErrUnexpectedAdmission, c.Name, err)
			}
		}
		if c.Init {
			reusable = append(reusable, c.Devices...)
		} else {
			reusable = slices.DeleteFunc(reusable, func(d string) bool { return slices.Contains(c.Devices, d) })
		}
		k.mu.Lock()
		a.Containers = append(a.Containers, c)
		k.mu.Unlock()
	}
	return slices.Clone(a.Containers), nil
}

// allocate chooses devices for a container, reusable ones first, and calls the plugin.
func (k *Kubelet) allocate(ctx context.Context, a *admitted, c *Container, reusable []string) error {
	k.mu.Lock()
	e := k.endpoints[a.resource]
	var free []string
	if e != nil {
		free = k.freeLocked(a, e)
	}
	k.mu.Unlock()
	if e == nil || e.conn == nil {
		return fmt.Errorf("no healthy devices present; cannot allocate unhealthy devices %s", a.resource)
	}
	must := slices.Clone(reusable[:min(len(reusable), c.Limit)])
	available := append(slices.Clone(must), free...)
	if len(available) < c.Limit {
		return fmt.Errorf("requested number of devices unavailable for %s: requested: %d, available: %d", a.resource,
			c.Limit, len(available))
	}
	devices, err := e.choose(ctx, available, must, c.Limit)
	if err != nil {
		return err
	}
	resp, err := e.client.Allocate(ctx, &v1beta1.AllocateRequest{
		ContainerRequests: []*v1beta1.ContainerAllocateRequest{{DevicesIds: devices}},
	})
	if err != nil {
		return fmt.Errorf("allocate: %w", err)
	}
	if n := len(resp.GetContainerResponses()); n != 1 {
		return fmt.Errorf("allocate: the plugin answered for %d containers, not 1", n)
	}
	r := resp.GetContainerResponses()[0]
	c.Devices = devices
	c.Envs = r.GetEnvs()
	c.Mounts = r.GetMounts()
	c.Annotations = r.GetAnnotations()
	return nil
}

// choose returns the devices that the plugin prefers, and fills up to size.
func (e *endpoint) choose(ctx context.Context, available, must []string, size int) ([]string, error) {
	chosen := slices.Clone(must)
	if e.options.GetGetPreferredAllocationAvailable() {
		resp, err := e.client.GetPreferredAllocation(ctx, &v1beta1.PreferredAllocationRequest{
			ContainerRequests: []*v1beta1.ContainerPreferredAllocationRequest{{
				AvailableDeviceIDs: available, MustIncludeDeviceIDs: must, AllocationSize: int32(size), //nolint:gosec // a handful
			}},
		})
		if err != nil {
			return nil, fmt.Errorf("prefer: %w", err)
		}
		for _, r := range resp.GetContainerResponses() {
			available = append(slices.Clone(r.GetDeviceIDs()), available...)
		}
	}
	for _, d := range available {
		if len(chosen) < size && !slices.Contains(chosen, d) {
			chosen = append(chosen, d)
		}
	}
	slices.Sort(chosen)
	return chosen, nil
}

// freeLocked returns the healthy devices that no pod has.
func (k *Kubelet) freeLocked(asking *admitted, e *endpoint) []string {
	free := e.healthy()
	for _, a := range k.pods {
		for _, c := range a.Containers {
			if a.resource == asking.resource {
				free = slices.DeleteFunc(free, func(d string) bool { return slices.Contains(c.Devices, d) })
			}
		}
	}
	return free
}

// StartContainer calls PreStartContainer. A container may start many times.
func (k *Kubelet) StartContainer(ctx context.Context, namespace, name, container string) error {
	a := k.find(namespace, name)
	if a == nil {
		return fmt.Errorf("pod %s/%s is not admitted", namespace, name)
	}
	k.mu.Lock()
	e := k.endpoints[a.resource]
	i := slices.IndexFunc(a.Containers, func(c Container) bool { return c.Name == container })
	k.mu.Unlock()
	switch {
	case i < 0:
		return fmt.Errorf("pod %s/%s has no container %s", namespace, name, container)
	case len(a.Containers[i].Devices) == 0:
		return nil
	case e == nil || e.conn == nil:
		return fmt.Errorf("PreStartContainer rpc failed: the plugin of %s has been stopped", a.resource)
	case !e.options.GetPreStartRequired():
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, preStartTimeout)
	defer cancel()
	_, err := e.client.PreStartContainer(ctx, &v1beta1.PreStartContainerRequest{DevicesIds: a.Containers[i].Devices})
	if err != nil {
		return fmt.Errorf("PreStartContainer rpc failed: %w", err)
	}
	return nil
}

// Remove deletes a pod, which frees its devices, and reports whether the pod existed.
func (k *Kubelet) Remove(namespace, name string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	before := len(k.pods)
	k.pods = slices.DeleteFunc(k.pods, func(a *admitted) bool { return a.Namespace == namespace && a.Name == name })
	return len(k.pods) < before
}

// Pods returns the admitted pods with the devices of their containers.
func (k *Kubelet) Pods() []Pod {
	k.mu.Lock()
	defer k.mu.Unlock()
	var pods []Pod
	for _, a := range k.pods {
		p := a.Pod
		p.Containers = slices.Clone(p.Containers)
		pods = append(pods, p)
	}
	return pods
}

func (k *Kubelet) find(namespace, name string) *admitted {
	k.mu.Lock()
	defer k.mu.Unlock()
	i := slices.IndexFunc(k.pods, func(a *admitted) bool { return a.Namespace == namespace && a.Name == name })
	if i < 0 {
		return nil
	}
	return k.pods[i]
}
