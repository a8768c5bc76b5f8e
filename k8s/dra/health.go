package dra

import (
	"sync"
	"time"

	"google.golang.org/grpc"
	drahealth "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
)

// health is the common health of all devices.
type health struct {
	mu      sync.Mutex
	healthy bool
	changed chan struct{} // closed and replaced when healthy changes
}

func newHealth() *health { return &health{changed: make(chan struct{})} }

// SetHealthy reports to kubelet whether the devices work: the dataplane must be reachable for that. The devices start
// unhealthy.
func (h *health) SetHealthy(healthy bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.healthy == healthy {
		return
	}
	h.healthy = healthy
	close(h.changed)
	h.changed = make(chan struct{})
}

func (h *health) state() (healthy bool, changed <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.healthy, h.changed
}

// healthPeriod is the time between two reports without a change. Kubelet forgets a report after 30 s.
const healthPeriod = 10 * time.Second

// NodeWatchResources reports the health of the devices, after each change and periodically, until kubelet ends the
// stream.
func (p *plugin) NodeWatchResources(
	_ *drahealth.NodeWatchResourcesRequest, stream grpc.ServerStreamingServer[drahealth.NodeWatchResourcesResponse],
) error {
	tick := time.NewTicker(healthPeriod)
	defer tick.Stop()
	for {
		healthy, changed := p.health.state()
		if err := stream.Send(p.report(healthy)); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-tick.C:
		case <-stream.Context().Done():
			return nil
		}
	}
}

func (p *plugin) report(healthy bool) *drahealth.NodeWatchResourcesResponse {
	state := drahealth.HealthStatus_UNHEALTHY
	message := "the agent has no connection to the dataplane"
	if healthy {
		state = drahealth.HealthStatus_HEALTHY
		message = ""
	}
	report := &drahealth.NodeWatchResourcesResponse{}
	for _, id := range p.config.Devices.Claimable() {
		report.Devices = append(report.Devices, &drahealth.DeviceHealth{
			Device: &drahealth.DeviceIdentifier{PoolName: p.config.Node, DeviceName: id},
			Health: state, Message: message, LastUpdatedTime: time.Now().Unix(),
		})
	}
	return report
}
