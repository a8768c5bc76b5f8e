// Package modeltest has a packet path that only remembers what it was told.
package modeltest

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/port"
)

// Neighbour is a neighbour entry of an Engine.
type Neighbour struct {
	MAC    frame.MAC
	Static bool
}

// State is what an engine was told and not told to forget.
type State struct {
	Taps       map[uint32]port.TapConfig
	AFPackets  map[uint32]port.AFPacketConfig
	Memifs     map[uint32]port.MemifConfig
	Proxies    forward.Proxies
	Interfaces map[uint32]forward.Interface
	Neighbours map[uint32]map[netip.Addr]Neighbour
	Tables     map[forward.TableKey]map[netip.Prefix]forward.Route
	Bridges    map[uint32]forward.Bridge
	Learned    map[BridgedMAC]uint32 // the interface of each
}

// Engine is a model.Engine that keeps State instead of forwarding. Its zero value is not of use: call New.
type Engine struct {
	mu        sync.Mutex
	state     State
	failTap   error
	unshown   bool
	published int
}

// New makes an engine that has the two tables 0 and nothing else.
func New() *Engine {
	return &Engine{state: State{
		Taps:       map[uint32]port.TapConfig{},
		AFPackets:  map[uint32]port.AFPacketConfig{},
		Memifs:     map[uint32]port.MemifConfig{},
		Interfaces: map[uint32]forward.Interface{},
		Neighbours: map[uint32]map[netip.Addr]Neighbour{},
		Bridges:    map[uint32]forward.Bridge{},
		Learned:    map[BridgedMAC]uint32{},
		Tables: map[forward.TableKey]map[netip.Prefix]forward.Route{
			{Family: forward.IP4}: {}, {Family: forward.IP6}: {},
		},
	}}
}

// FailTap makes OpenTap, OpenAFPacket and OpenMemif fail with err until it is called with nil.
func (e *Engine) FailTap(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failTap = err
}

// Look calls f with the state, which f must not keep.
func (e *Engine) Look(f func(State)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f(e.state)
}

// Unpublished says whether there are changes that Publish has not shown.
func (e *Engine) Unpublished() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.unshown
}

// OpenTap remembers the tap.
func (e *Engine) OpenTap(index uint32, c port.TapConfig) (port.TapInfo, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.failTap != nil {
		return port.TapInfo{}, e.failTap
	}
	for _, other := range e.state.Taps {
		if c.Name != "" && other.Name == c.Name && other.Namespace == c.Namespace {
			return port.TapInfo{}, port.ErrNameInUse
		}
	}
	if _, ok := e.state.Taps[index]; ok {
		return port.TapInfo{}, forward.ErrPortExists
	}
	e.state.Taps[index] = c
	return tapInfo(index, c), nil
}

// tapInfo fills in what the kernel would choose.
func tapInfo(index uint32, c port.TapConfig) port.TapInfo {
	info := port.TapInfo{Name: c.Name, Ifindex: int(index) + 1, HostMAC: c.HostMAC, HostMTU: c.HostMTU}
	if info.Name == "" {
		info.Name = fmt.Sprintf("tap%d", index)
	}
	if info.HostMAC.IsZero() {
		info.HostMAC = frame.MAC{2, 0xee, 0, 0, byte(index >> 8), byte(index)}
	}
	if info.HostMTU == 0 {
		info.HostMTU = 1500
	}
	return info
}

// ClosePort forgets the tap or memif, or lets the link go.
func (e *Engine) ClosePort(index uint32) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.hasPortLocked(index) {
		return forward.ErrNoPort
	}
	delete(e.state.Taps, index)
	delete(e.state.AFPackets, index)
	delete(e.state.Memifs, index)
	return nil
}

// SetInterface remembers the interface.
func (e *Engine) SetInterface(index uint32, i forward.Interface) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if index >= forward.MaxInterfaces {
		return forward.ErrNoInterface
	}
	i.Addresses = slices.Clone(i.Addresses)
	e.state.Interfaces[index] = i
	e.unshown = true
	return nil
}

// DelInterface forgets the interface with its neighbours.
func (e *Engine) DelInterface(index uint32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.state.Interfaces, index)
	delete(e.state.Neighbours, index)
	e.unshown = true
}

// SetNeighbour remembers the neighbour by the real engine's rule: static entries stay.
func (e *Engine) SetNeighbour(index uint32, a netip.Addr, m frame.MAC, static bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, ok := e.state.Interfaces[index]; !ok {
		return forward.ErrNoInterface
	}
	if e.state.Neighbours[index] == nil {
		e.state.Neighbours[index] = map[netip.Addr]Neighbour{}
	}
	if old, ok := e.state.Neighbours[index][a]; !ok || static || !old.Static {
		e.state.Neighbours[index][a] = Neighbour{MAC: m, Static: static}
	}
	e.unshown = true
	return nil
}

// DelNeighbour forgets the neighbour.
func (e *Engine) DelNeighbour(index uint32, a netip.Addr) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.state.Neighbours[index], a)
	if len(e.state.Neighbours[index]) == 0 {
		delete(e.state.Neighbours, index)
	}
	e.unshown = true
}

// Publish counts.
func (e *Engine) Publish() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.unshown = false
	e.published++
}

// AddTable makes an empty table, or keeps the one there is.
func (e *Engine) AddTable(k forward.TableKey) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.state.Tables[k] == nil {
		e.state.Tables[k] = map[netip.Prefix]forward.Route{}
	}
	e.unshown = true
}

// DelTable forgets the table.
func (e *Engine) DelTable(k forward.TableKey) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.state.Tables, k)
	e.unshown = true
}

// SetRoute remembers the route.
func (e *Engine) SetRoute(k forward.TableKey, p netip.Prefix, r forward.Route) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.state.Tables[k] == nil:
		return forward.ErrNoTable
	case !p.IsValid() || p != p.Masked() || forward.FamilyOf(p.Addr()) != k.Family:
		return forward.ErrBadRoute
	case r.Action == forward.Forward && (len(r.Paths) == 0 || len(r.Paths) > 64):
		return forward.ErrBadRoute
	}
	r.Paths = slices.Clone(r.Paths)
	e.state.Tables[k][p] = r
	e.unshown = true
	return nil
}

// DelRoute forgets the route.
func (e *Engine) DelRoute(k forward.TableKey, p netip.Prefix) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.state.Tables[k], p)
	e.unshown = true
}

// Counters are nothing but an index's own number of packets, to be told apart.
func (e *Engine) Counters(index uint32) forward.Counters {
	return forward.Counters{RxPackets: uint64(index), RxBytes: 100 * uint64(index)}
}

// Drops are always the same.
func (e *Engine) Drops() map[string]uint64 {
	return map[string]uint64{"ethernet-input/unknown ethernet type": 7}
}

// Trace is always one line.
func (e *Engine) Trace(index uint32, n int) []string {
	return []string{fmt.Sprintf("a frame on %d, of %d at most", index, n)}
}
