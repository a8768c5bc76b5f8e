// Package modeltest has a fake packet path.
package modeltest

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/port"
)

// Neighbour is a neighbour entry of an Engine.
type Neighbour struct {
	MAC    frame.MAC
	Static bool
}

// State is the configuration that an Engine has received.
type State struct {
	Taps       map[uint32]port.TapConfig
	AFPackets  map[uint32]port.AFPacketConfig
	Memifs     map[uint32]port.MemifConfig
	Proxies    forward.Proxies
	Interfaces map[uint32]forward.Interface
	Neighbours map[uint32]map[netip.Addr]Neighbour
	Tables     map[forward.TableKey]map[netip.Prefix]forward.Route
	Bridges    map[uint32]forward.Bridge
	Learned    map[BridgedMAC]uint32 // interface of each MAC
	Sessions   map[uint32][]forward.Session
}

// Engine is a model.Engine that records its configuration. It forwards nothing.
type Engine struct {
	mu          sync.Mutex
	state       State
	portErr     error
	unpublished bool
}

// New returns an engine with the default VRFs.
func New() *Engine {
	return &Engine{state: State{
		Taps:       map[uint32]port.TapConfig{},
		AFPackets:  map[uint32]port.AFPacketConfig{},
		Memifs:     map[uint32]port.MemifConfig{},
		Interfaces: map[uint32]forward.Interface{},
		Neighbours: map[uint32]map[netip.Addr]Neighbour{},
		Bridges:    map[uint32]forward.Bridge{},
		Learned:    map[BridgedMAC]uint32{},
		Sessions:   map[uint32][]forward.Session{},
		Tables: map[forward.TableKey]map[netip.Prefix]forward.Route{
			{Family: forward.IP4}: {}, {Family: forward.IP6}: {},
		},
	}}
}

// FailPorts makes OpenTap, OpenAFPacket and OpenMemif return err, until it is called with nil.
func (e *Engine) FailPorts(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.portErr = err
}

// Look calls f with the state. f must not keep it.
func (e *Engine) Look(f func(State)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f(e.state)
}

// change calls f to change the state, which Publish then publishes.
func (e *Engine) change(f func(s *State)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f(&e.state)
	e.unpublished = true
}

// Unpublished reports whether there are changes after the last Publish.
func (e *Engine) Unpublished() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.unpublished
}

// Publish publishes all changes.
func (e *Engine) Publish() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.unpublished = false
}

// OpenTap records a tap. Names must be unique in their network namespace.
func (e *Engine) OpenTap(index uint32, c port.TapConfig) (port.TapInfo, error) {
	err := e.open(index, func() error {
		for _, other := range e.state.Taps {
			if c.Name != "" && other.Name == c.Name && other.Namespace == c.Namespace {
				return port.ErrNameInUse
			}
		}
		e.state.Taps[index] = c
		return nil
	})
	if err != nil {
		return port.TapInfo{}, err
	}
	return tapInfo(index, c), nil
}

// open calls record unless the interface has a port or FailPorts has set an error.
func (e *Engine) open(index uint32, record func() error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.portErr != nil {
		return e.portErr
	}
	if e.hasPortLocked(index) {
		return forward.ErrPortExists
	}
	return record()
}

func (e *Engine) hasPortLocked(index uint32) bool {
	_, tap := e.state.Taps[index]
	_, link := e.state.AFPackets[index]
	_, memif := e.state.Memifs[index]
	return tap || link || memif
}

// tapInfo returns the configuration with the values that the kernel would choose.
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

// OpenAFPacket records an af_packet port. Any link exists.
func (e *Engine) OpenAFPacket(index uint32, c port.AFPacketConfig) (port.AFPacketInfo, error) {
	if err := e.open(index, func() error { e.state.AFPackets[index] = c; return nil }); err != nil {
		return port.AFPacketInfo{}, err
	}
	return port.AFPacketInfo{Ifindex: int(index) + 1, MTU: 1500}, nil
}

// AdoptTap records a tap.
func (e *Engine) AdoptTap(index uint32, c port.TapConfig, _ []int) error {
	_, err := e.OpenTap(index, c)
	return err
}

// AdoptAFPacket records an af_packet port.
func (e *Engine) AdoptAFPacket(index uint32, c port.AFPacketConfig, _ []int) error {
	_, err := e.OpenAFPacket(index, c)
	return err
}

// AdoptMemifSocket accepts any socket.
func (*Engine) AdoptMemifSocket(forward.OpenSocket) error { return nil }

// AdoptMemif returns the client that the other engine had.
func (*Engine) AdoptMemif(_ uint32, from forward.OpenPort) (*port.MemifPeer, error) {
	i := from.Memif.Info
	return &port.MemifPeer{
		Name:      i.Peer,
		Interface: i.PeerInterface,
		RxQueues:  i.RxQueues,
		TxQueues:  i.TxQueues,
		RingSize:  i.RingSize,
		Regions:   i.Regions, Guarded: i.Guarded,
	}, nil
}

// OpenMemif records a memif. A test connects a client with the event forward.PeerConnected.
func (e *Engine) OpenMemif(index uint32, c port.MemifConfig) error {
	return e.open(index, func() error { e.state.Memifs[index] = c; return nil })
}

// ClosePort deletes the port of an interface.
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

// SetInterface records an interface.
func (e *Engine) SetInterface(index uint32, i forward.Interface) error {
	if index >= forward.MaxInterfaces {
		return forward.ErrNoInterface
	}
	i.Addresses = slices.Clone(i.Addresses)
	e.change(func(s *State) { s.Interfaces[index] = i })
	return nil
}

// DelInterface deletes an interface and its neighbours.
func (e *Engine) DelInterface(index uint32) {
	e.change(func(s *State) {
		delete(s.Interfaces, index)
		delete(s.Neighbours, index)
		delete(s.Sessions, index)
	})
}

// SetNeighbour records a neighbour. As in the real engine a dynamic neighbour does not replace a static one.
func (e *Engine) SetNeighbour(index uint32, a netip.Addr, m frame.MAC, static bool) (err error) {
	e.change(func(s *State) {
		if _, ok := s.Interfaces[index]; !ok {
			err = forward.ErrNoInterface
			return
		}
		if s.Neighbours[index] == nil {
			s.Neighbours[index] = map[netip.Addr]Neighbour{}
		}
		if old, ok := s.Neighbours[index][a]; !ok || static || !old.Static {
			s.Neighbours[index][a] = Neighbour{MAC: m, Static: static}
		}
	})
	return err
}

// DelNeighbour deletes a neighbour.
func (e *Engine) DelNeighbour(index uint32, a netip.Addr) {
	e.change(func(s *State) {
		delete(s.Neighbours[index], a)
		if len(s.Neighbours[index]) == 0 {
			delete(s.Neighbours, index)
		}
	})
}

// AddTable adds an empty table, if it does not exist.
func (e *Engine) AddTable(k forward.TableKey) {
	e.change(func(s *State) {
		if s.Tables[k] == nil {
			s.Tables[k] = map[netip.Prefix]forward.Route{}
		}
	})
}

// DelTable deletes a table.
func (e *Engine) DelTable(k forward.TableKey) {
	e.change(func(s *State) { delete(s.Tables, k) })
}

// SetRoute records a route.
func (e *Engine) SetRoute(k forward.TableKey, p netip.Prefix, r forward.Route) (err error) {
	r.Paths = slices.Clone(r.Paths)
	e.change(func(s *State) {
		switch {
		case s.Tables[k] == nil:
			err = forward.ErrNoTable
		case !p.IsValid() || p != p.Masked() || forward.FamilyOf(p.Addr()) != k.Family,
			r.Action == forward.Forward && (len(r.Paths) == 0 || len(r.Paths) > 64):
			err = forward.ErrBadRoute
		default:
			s.Tables[k][p] = r
		}
	})
	return err
}

// DelRoute deletes a route.
func (e *Engine) DelRoute(k forward.TableKey, p netip.Prefix) {
	e.change(func(s *State) { delete(s.Tables[k], p) })
}

// SetProxies records the proxied addresses.
func (e *Engine) SetProxies(p forward.Proxies) {
	e.change(func(s *State) { s.Proxies = p })
}

// Counters returns values that depend on the index.
func (e *Engine) Counters(index uint32) forward.Counters {
	return forward.Counters{RxPackets: uint64(index), RxBytes: 100 * uint64(index)}
}

// Drops returns a fixed value.
func (e *Engine) Drops() map[string]uint64 {
	return map[string]uint64{"ethernet-input/unknown ethernet type": 7}
}

// StartTrace does nothing.
func (e *Engine) StartTrace(forward.InputNode, int) {}

// ClearTrace does nothing.
func (e *Engine) ClearTrace() {}

// TracePaths returns one path of one worker.
func (e *Engine) TracePaths(nameOf func(uint32) string) [][]string {
	return [][]string{{"a path on " + nameOf(1)}}
}

// Trace returns one line.
func (e *Engine) Trace(index uint32, n int) []string {
	return []string{fmt.Sprintf("a frame on %d, of %d at most", index, n)}
}

// Loads returns the load of one worker.
func (e *Engine) Loads() []forward.Load {
	return []forward.Load{{Elapsed: time.Minute, Asleep: 45 * time.Second, Sleeps: 7, Vectors: 10, Frames: 25}}
}

// Sessions returns the sessions that RestoreSessions set.
func (e *Engine) Sessions(index uint32) []forward.Session {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.state.Sessions[index])
}

// RestoreSessions records sessions.
func (e *Engine) RestoreSessions(index uint32, all []forward.Session) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(all) > 0 {
		e.state.Sessions[index] = slices.Clone(all)
	}
}
