package model

import (
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/weftnet/weft/vswitch/forward"
)

// Model is the control state. Its methods may be called from anywhere; each is one change, seen whole by the workers.
// Errors that a caller of VPP would get as a retval are Retvals; others are faults of ours or of the machine.
type Model struct {
	engine Engine
	log    *slog.Logger

	mu         sync.Mutex
	notify     func(InterfaceEvent)
	interfaces map[uint32]*iface
	lastIndex  uint32
}

// New makes a model that has local0 and the two tables 0, as VPP has from the start.
func New(engine Engine, log *slog.Logger) *Model {
	m := &Model{engine: engine, log: log, notify: func(InterfaceEvent) {}, interfaces: map[uint32]*iface{}}
	m.interfaces[0] = newLocal0()
	return m
}

// Notify sets who hears of interfaces that come, go and change. f is called in order, under the model's lock:
// it must not wait and must not call the model.
func (m *Model) Notify(f func(InterfaceEvent)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.notify = f
}

// indexes are all interfaces' indexes in order.
func (m *Model) indexesLocked() []uint32 { return slices.Sorted(maps.Keys(m.interfaces)) }

// interfaceLocked finds an interface that requests may name.
func (m *Model) interfaceLocked(index uint32) (*iface, error) {
	i, ok := m.interfaces[index]
	if !ok {
		return nil, InvalidSwIfIndex
	}
	return i, nil
}

// freeIndexLocked chooses the index of a new interface: the one after the last given away, so that an index
// that has just become free does not soon mean something else.
func (m *Model) freeIndexLocked() (uint32, error) {
	for range forward.MaxInterfaces {
		m.lastIndex = (m.lastIndex + 1) % forward.MaxInterfaces
		if _, taken := m.interfaces[m.lastIndex]; !taken {
			return m.lastIndex, nil
		}
	}
	return 0, LimitExceeded
}
