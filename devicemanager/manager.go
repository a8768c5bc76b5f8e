package devicemanager

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/internal/secret"
	"github.com/weftnet/weft/pod"
)

// Manager keeps the allocations, serves kubelet as a device plugin, and asks it who has which device.
type Manager struct {
	config   Config
	health   *health
	presence *presence
	nudge    chan struct{} // wakes the collection; holds one

	unanswered atomic.Int64 // requests of kubelet's for allocations: it cannot list what these make

	mu          sync.Mutex
	allocations map[string]*allocation        // by id; nobody changes one that is in here
	users       map[string]map[pod.Key]pod.ID // attachments with a memif of an allocation, by its id
	unsaved     map[string]bool               // ids of allocations that the state file does not have as they are
}

// allocation is what the manager keeps of one: as kubelet was given it, and what became of it.
//
//	           AllocateDevice                 AddPod
//	not there ----------------> allocated -------------> granted to a container (again for each sandbox of its pod)
//	    ^                           |                        |
//	    +------ ReleaseDevice ------+------------------------+
//	       kubelet lists none of its devices any more, and no attachment uses it
//
// Devices that kubelet gives to somebody else leave it, and it waits without them for its end.
type allocation struct {
	pod.Allocation

	// heir is the allocation that got the devices soon after this one had them: kubelet gives those of an init
	// container to a later container of the same pod. The container's mount is needed as long as that pod is there.
	heir string
}

// New returns a Manager without allocations. Restore, Rebuild and Register come before the loop runs.
func New(config Config) (*Manager, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("devices: %w", err)
	}
	m := &Manager{
		config:      config,
		health:      newHealth(config.Count),
		nudge:       make(chan struct{}, 1),
		allocations: make(map[string]*allocation),
		users:       make(map[string]map[pod.Key]pod.ID),
		unsaved:     make(map[string]bool),
	}
	m.presence = newPresence(config, &plugin{manager: m})
	return m, nil
}

// Register puts the manager's handlers into the loop, where they are to come after those that connect pods.
func (m *Manager) Register(l *eventloop.Loop) {
	eventloop.On(l, "devicemanager", m.Allocate)
	eventloop.On(l, "devicemanager", m.Grant)
	eventloop.On(l, "devicemanager", m.Leave)
	eventloop.On(l, "devicemanager", m.Release)
	l.OnResync("devicemanager", m.resync)
}

// SetHealthy tells kubelet whether new pods may get devices: not while the dataplane is away. Until it is called they may.
func (m *Manager) SetHealthy(healthy bool) {
	if m.health.set(healthy) {
		m.config.Log.Info("devices changed their health", "healthy", healthy)
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

// Stats are numbers for operators.
type Stats struct {
	Registered    bool              // with the kubelet that is running
	Registrations map[string]uint64 // tried, by result: ok, error
	Devices       map[string]int    // by state: free, allocated, granted
	Allocations   int               // also those that lost their devices
}

// Stats returns the numbers as they are now.
func (m *Manager) Stats() Stats {
	s := Stats{Devices: map[string]int{"free": 0, "allocated": 0, "granted": 0}}
	s.Registered, s.Registrations = m.presence.stats()
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

// find returns the allocation of that id, nil if there is none.
func (m *Manager) find(id string) *allocation {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.allocations[id]
}

// holders returns who has the devices, in their order, each once.
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

// swap gives id another allocation, nil for none, and returns the one before.
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

// put swaps, until the event is undone.
func (m *Manager) put(id string, a *allocation, txn *eventloop.Txn) {
	before := m.swap(id, a)
	txn.OnRollback(func() error { m.swap(id, before); return nil })
}

// clone is a copy for others, which shares nothing with the allocation.
func (a *allocation) clone() pod.Allocation {
	c := a.Allocation
	c.Devices = slices.Clone(c.Devices)
	return c
}

// Secret is the secret of an allocation; "" if there is no such allocation.
func (m *Manager) Secret(allocation string) secret.Text {
	a := m.find(allocation)
	if a == nil {
		return ""
	}
	return a.Secret
}
