// Package devicemanager offers memif sockets to kubelet as devices and records which container has which device.
package devicemanager

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/internal/secret"
	"github.com/weftnet/weft/pod"
)

// Manager keeps the allocations, serves kubelet as a device plugin, and queries kubelet for the devices of pods.
type Manager struct {
	config    Config
	health    *health
	registrar *registrar
	wake      chan struct{} // wakes the collector; holds one

	unanswered atomic.Int64 // Allocate requests in progress: kubelet does not list their devices yet

	mu          sync.Mutex
	allocations map[string]*allocation        // by id; an allocation in the map is immutable
	users       map[string]map[pod.Key]pod.ID // attachments that use an allocation, by its id
	unsaved     map[string]bool               // ids of allocations that differ from the state file
}

// New returns a Manager without allocations. Restore, Rebuild and Register come before the loop runs.
func New(config Config) (*Manager, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("devices: %w", err)
	}
	m := &Manager{
		config:      config,
		health:      newHealth(config.pluginCount()),
		wake:        make(chan struct{}, 1),
		allocations: make(map[string]*allocation),
		users:       make(map[string]map[pod.Key]pod.ID),
		unsaved:     make(map[string]bool),
	}
	m.registrar = newRegistrar(config, &plugin{manager: m})
	return m, nil
}

// Register registers the manager's handlers. They must run after the handlers that connect pods.
func (m *Manager) Register(l *eventloop.Loop) {
	eventloop.On(l, "devicemanager", m.Allocate)
	eventloop.On(l, "devicemanager", m.Grant)
	eventloop.On(l, "devicemanager", m.Leave)
	eventloop.On(l, "devicemanager", m.Release)
	eventloop.On(l, "devicemanager", m.PrepareClaim)
	eventloop.On(l, "devicemanager", m.ReleaseClaim)
	l.OnResync("devicemanager", m.resync)
}

// SetHealthy reports to kubelet whether new pods may get devices. The dataplane must be reachable for that. The devices
// start healthy.
func (m *Manager) SetHealthy(healthy bool) {
	if m.health.set(healthy) {
		m.config.Log.Info("device health changed", "healthy", healthy)
	}
}

// Allocations returns copies of all allocations, oldest first.
func (m *Manager) Allocations() []pod.Allocation {
	var all []pod.Allocation
	for _, a := range m.inOrder() {
		all = append(all, a.clone())
	}
	return all
}

// Stats are the counters that the agent exports as metrics.
type Stats struct {
	Registered    bool              // with the running kubelet
	NotRegistered string            // why not; "" if it is registered, or has not tried yet
	Registrations map[string]uint64 // attempts by result: ok, error
	Devices       map[string]int    // by state: free, allocated, granted
	Allocations   int               // including those without devices
}

// Stats returns the current counters.
func (m *Manager) Stats() Stats {
	s := Stats{Devices: map[string]int{"free": 0, "allocated": 0, "granted": 0}}
	s.Registered, s.NotRegistered, s.Registrations = m.registrar.stats()
	taken := 0
	all := m.inOrder()
	for _, a := range all {
		state := "allocated"
		if a.Granted {
			state = "granted"
		}
		s.Devices[state] += len(a.Devices)
		taken += len(a.Devices)
	}
	s.Devices["free"] = max(0, m.config.Count-taken)
	s.Allocations = len(all)
	return s
}

// inOrder returns all allocations, oldest first.
func (m *Manager) inOrder() []*allocation {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.SortedFunc(maps.Values(m.allocations), func(a, b *allocation) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
}

// find returns the allocation with the given id, or nil.
func (m *Manager) find(id string) *allocation {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.allocations[id]
}

// holders returns the allocations that have the devices, each once, in the order of the devices.
func (m *Manager) holders(devices []string) []*allocation {
	all := m.inOrder()
	var found []*allocation
	for _, device := range devices {
		for _, a := range all {
			if slices.Contains(a.Devices, device) && !slices.Contains(found, a) {
				found = append(found, a)
			}
		}
	}
	return found
}

// swap stores a as the allocation of id, nil deletes it, and returns the previous one.
func (m *Manager) swap(id string, a *allocation) *allocation {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.allocations[id]
	if a == nil {
		delete(m.allocations, id)
	} else {
		m.allocations[id] = a
	}
	return before
}

// put is swap with an undo when the event is rolled back.
func (m *Manager) put(id string, a *allocation, txn *eventloop.Txn) {
	before := m.swap(id, a)
	txn.OnRollback(func() error { m.swap(id, before); return nil })
}

// Secret returns the secret of an allocation, or "" if the allocation does not exist.
func (m *Manager) Secret(allocation string) secret.Text {
	a := m.find(allocation)
	if a == nil {
		return ""
	}
	return a.Secret
}

// Run registers the devices with kubelet and collects unused allocations until ctx ends. Call it after the first resync
// of the loop: kubelet may send requests immediately.
func (m *Manager) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	if m.config.pluginCount() > 0 {
		group.Go(func() error { return m.registrar.run(ctx) })
	}
	group.Go(func() error { return newCollector(m).run(ctx) })
	return group.Wait()
}
