package model

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weftnet/weft/vswitch/forward"
)

// Model is the control state. Its methods may be called from anywhere; each is one change, seen whole by the workers.
// Errors that a caller of VPP would get as a retval are Retvals; others are faults of ours or of the machine.
type Model struct {
	engine Engine
	log    *slog.Logger
	now    func() time.Time

	mu         sync.Mutex
	notify     func(InterfaceEvent)
	interfaces map[uint32]*iface
	lastIndex  uint32
	tables     map[forward.TableKey]*table
	neighbours map[forward.Family]int // how many
	bridges    map[uint32]*bridge
	macips     map[uint32]*macip
	acls       map[uint32]*acl
	sockets    map[uint32]*memifSocket
	runDir     string // where relative names of sockets begin; empty: nowhere
	nextMACIP  uint32
	nextACL    uint32
	proxyARPs  []forward.ProxyRange
	redirects  map[redirectKey]Path
	puntUDP    map[forward.Family]bool
	lastEntry  uint32 // last number given to a FIB entry
	traced     int    // frames of each port that Traces tells
}

// New makes a model that has local0 and the two tables 0, as VPP has from the start.
func New(engine Engine, log *slog.Logger) *Model {
	m := &Model{engine: engine, log: log, now: time.Now, notify: func(InterfaceEvent) {},
		interfaces: map[uint32]*iface{}, tables: map[forward.TableKey]*table{},
		neighbours: map[forward.Family]int{}, bridges: map[uint32]*bridge{}, macips: map[uint32]*macip{}, acls: map[uint32]*acl{},
		sockets: map[uint32]*memifSocket{}, redirects: map[redirectKey]Path{}, puntUDP: map[forward.Family]bool{}}
	defer m.change()()
	for _, family := range []forward.Family{forward.IP4, forward.IP6} {
		m.makeTableLocked(forward.TableKey{Family: family}, "")
	}
	m.interfaces[0] = newIface(Interface{Name: "local0", DevType: "local"})
	m.showLocked(m.interfaces[0])
	return m
}

// Notify sets who hears of interfaces that come, go and change. f is called in order, under the model's lock:
// it must not wait and must not call the model.
func (m *Model) Notify(f func(InterfaceEvent)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.notify = f
}

// change begins a change; the function that it returns ends it and shows it to the workers.
func (m *Model) change() func() {
	m.mu.Lock()
	return func() {
		defer m.mu.Unlock()
		m.engine.Publish()
	}
}

// indexesLocked are all interfaces' indexes in order.
func (m *Model) indexesLocked() []uint32 { return slices.Sorted(maps.Keys(m.interfaces)) }

// interfaceLocked finds an interface that a request names.
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
