package devicemanager

import (
	"sync"

	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// health is the common health of all devices. It notifies the streams of a change.
type health struct {
	count    int
	topology *v1beta1.TopologyInfo // nil: kubelet has no preference

	mu      sync.Mutex
	healthy bool
	changed chan struct{} // closed and replaced when healthy changes
}

func newHealth(count int, numaNode *int) *health {
	h := &health{count: count, healthy: true, changed: make(chan struct{})}
	if numaNode != nil {
		h.topology = &v1beta1.TopologyInfo{Nodes: []*v1beta1.NUMANode{{ID: int64(*numaNode)}}}
	}
	return h
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
		list.Devices = append(list.Devices, &v1beta1.Device{ID: deviceID(n), Health: state, Topology: h.topology})
	}
	return list, h.changed
}
