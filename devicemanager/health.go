package devicemanager

import (
	"sync"

	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// health is what all devices are, and who waits for it to change.
type health struct {
	count int

	mu      sync.Mutex
	healthy bool
	changed chan struct{} // closed when healthy changes; then there is another one
}

func newHealth(count int) *health {
	return &health{count: count, healthy: true, changed: make(chan struct{})}
}

// set reports whether that is a change.
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

// list is the whole list of devices, and what tells that there is another one. It always names all of them: a list
// without a device would take it from the node.
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
