// Package devicemanager offers memif sockets to kubelet as devices and records which container has which device.
//
//	kubelet --plugin--> requests --event--> handlers --> table, users: the allocations
//	                                                 --> layout: their files, as desired values
//
// The [Manager] answers the other packages: which devices a pod has (podResources asks kubelet), and the devices of
// claims. The registrar keeps the plugin registered with kubelet. The disk has lost files recreated. The collector
// releases allocations that kubelet no longer lists.
package devicemanager

import (
	"context"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/status"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/internal/secret"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// Manager is the device manager of a node: it connects the parts and answers the agent, the ADDs of pods, and the DRA
// driver.
type Manager struct {
	config Config

	table     *table
	users     *users
	factory   *factory
	layout    *layout
	disk      *disk
	kubelet   *podResources
	requests  *requests
	collector *collector
	health    *health
	registrar *registrar
}

// New returns a Manager without allocations. Restore, Rebuild and Register come before the loop runs.
func New(config Config) (*Manager, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("devices: %w", err)
	}
	m := &Manager{
		config:  config,
		table:   newTable(),
		users:   newUsers(),
		layout:  &layout{directories: config.Directories, mounts: config.Mounts},
		kubelet: &podResources{socket: config.Kubelet.PodResources},
		health:  newHealth(config.Devices.pluginCount(), config.Devices.NUMANode),
	}
	m.factory = &factory{table: m.table, root: config.Directories.Root, random: config.Rand, now: config.Now}
	m.disk = &disk{
		layout:    m.layout,
		table:     m.table,
		loop:      config.Loop,
		claimable: config.Devices.Claimable > 0,
		log:       config.Log,
	}
	m.requests = &requests{loop: config.Loop, timeout: config.AllocateTimeout, disk: m.disk, log: config.Log}
	m.collector = &collector{
		config:   config.Collect,
		table:    m.table,
		users:    m.users,
		disk:     m.disk,
		requests: m.requests,
		kubelet:  m.kubelet,
		now:      config.Now,
		log:      config.Log,
		wake:     make(chan struct{}, 1),
		missing:  make(map[string]time.Time),
	}
	m.registrar = newRegistrar(config, &plugin{
		health:   m.health,
		requests: m.requests,
		table:    m.table,
		disk:     m.disk,
		mounts:   config.Mounts,
		log:      config.Log,
	})
	return m, nil
}

// Register registers the manager's handlers. They must run after the handlers that connect pods.
func (m *Manager) Register(l *eventloop.Loop) {
	h := &handlers{
		devices:   m.config.Devices,
		table:     m.table,
		users:     m.users,
		factory:   m.factory,
		layout:    m.layout,
		collector: m.collector,
	}
	eventloop.On(l, "devicemanager", h.Allocate)
	eventloop.On(l, "devicemanager", h.Grant)
	eventloop.On(l, "devicemanager", h.Change)
	eventloop.On(l, "devicemanager", h.Leave)
	eventloop.On(l, "devicemanager", h.Release)
	eventloop.On(l, "devicemanager", h.PrepareClaim)
	eventloop.On(l, "devicemanager", h.ReleaseClaim)
	l.OnResync("devicemanager", h.resync)
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
	for _, a := range m.table.inOrder() {
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
	s.Registered, s.NotRegistered, s.Registrations = m.registrar.status.read()
	taken := 0
	all := m.table.inOrder()
	for _, a := range all {
		state := "allocated"
		if a.Granted {
			state = "granted"
		}
		s.Devices[state] += len(a.Devices)
		taken += len(a.Devices)
	}
	s.Devices["free"] = max(0, m.config.Devices.Count-taken)
	s.Allocations = len(all)
	return s
}

// Devices returns the allocations of the pod's containers, in kubelet's order of containers. A sandbox that is not a
// Kubernetes pod has no allocations. Errors name the pod and have a CNI code. Devices recreates lost files, because the
// ADD relies on them.
func (m *Manager) Devices(ctx context.Context, id pod.ID) ([]pod.Grant, error) {
	if id.IsZero() {
		return nil, nil
	}
	found, err := m.kubelet.devicesOf(ctx, id)
	if err != nil {
		return nil, pod.Errorf(pod.CodeTryAgain, "pod %s: ask kubelet at %s for its devices: %s: is kubelet running?",
			id, m.kubelet.socket, status.Convert(err).Message())
	}
	var grants []pod.Grant
	for _, c := range found {
		holders := m.table.holders(c.devices)
		if len(holders) == 0 {
			return nil, pod.Errorf(pod.CodeDeviceMissing,
				"pod %s: container %s has device %s, but this node lost its allocation: delete the pod and create it again",
				id, c.container, strings.Join(c.devices, ", "))
		}
		if err := m.disk.ensure(ctx, holders); err != nil {
			return nil, pod.Errorf(pod.CodeIO, "pod %s: container %s: %w", id, c.container, err)
		}
		for _, a := range holders {
			grants = append(grants, pod.Grant{Container: c.container, GID: pod.UnknownGroup, Allocation: a.clone()})
		}
	}
	return grants, nil
}

// Claimed returns the allocations of the pod's claims, oldest first. Errors name the pod and have a CNI code. Claimed
// recreates lost files, because the ADD and the runtime rely on them.
func (m *Manager) Claimed(ctx context.Context, id pod.ID) ([]pod.Grant, error) {
	var own []*allocation
	for _, a := range m.table.claimed() {
		if a.Claim.IsFor(id) {
			own = append(own, a)
		}
	}
	if len(own) == 0 {
		return nil, nil
	}
	if err := m.disk.ensure(ctx, own); err != nil {
		return nil, pod.Errorf(pod.CodeIO, "pod %s: %w", id, err)
	}
	var grants []pod.Grant
	for _, a := range own {
		grants = append(grants, pod.Grant{GID: pod.UnknownGroup, Allocation: a.clone()})
	}
	return grants, nil
}

// Objects returns the scheduler keys of an allocation's files, none for an unknown allocation.
func (m *Manager) Objects(allocation string) []string {
	a := m.table.find(allocation)
	if a == nil {
		return nil
	}
	files, err := m.layout.files(a)
	if err != nil {
		return nil // cannot happen: the allocation was built from the same data
	}
	var keys []string
	for _, f := range files {
		keys = append(keys, wire.FileKey(f.path))
	}
	return keys
}

// Lists reports whether kubelet has the pod.
func (m *Manager) Lists(ctx context.Context, id pod.ID) (bool, error) {
	return m.kubelet.lists(ctx, id)
}

// Secret returns the secret of an allocation, or "" if the allocation does not exist.
func (m *Manager) Secret(allocation string) secret.Text {
	a := m.table.find(allocation)
	if a == nil {
		return ""
	}
	return a.Secret
}

// Run registers the devices with kubelet and collects unused allocations until ctx ends. Call it after the first resync
// of the loop: kubelet may send requests immediately.
func (m *Manager) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	if m.config.Devices.pluginCount() > 0 {
		group.Go(func() error { return m.registrar.run(ctx) })
	}
	group.Go(func() error { return m.collector.run(ctx) })
	return group.Wait()
}
