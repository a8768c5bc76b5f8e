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
	*recorder
	ports
	links
	fibs
	bridging
	observer
}

// New returns an engine with the default VRFs.
func New() *Engine {
	r := &recorder{state: State{
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
	return &Engine{
		recorder: r,
		ports:    ports{r},
		links:    links{r},
		fibs:     fibs{r},
		bridging: bridging{r},
		observer: observer{r},
	}
}

// recorder has the state, which all parts of an Engine change.
type recorder struct {
	mu          sync.Mutex
	state       State
	portErr     error
	unpublished bool
}

// FailPorts makes OpenTap, OpenAFPacket and OpenMemif return err, until it is called with nil.
func (r *recorder) FailPorts(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.portErr = err
}

// Look calls f with the state. f must not keep it.
func (r *recorder) Look(f func(State)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(r.state)
}

// change calls f to change the state, which Publish then publishes.
func (r *recorder) change(f func(s *State)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(&r.state)
	r.unpublished = true
}

// Unpublished reports whether there are changes after the last Publish.
func (r *recorder) Unpublished() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.unpublished
}

// Publish publishes all changes.
func (r *recorder) Publish() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unpublished = false
}

// ports is a model.Ports and a model.Adopter.
type ports struct{ *recorder }

// OpenTap records a tap. Names must be unique in their network namespace.
func (ps *ports) OpenTap(index uint32, c port.TapConfig) (port.TapInfo, error) {
	err := ps.open(index, func() error {
		for _, other := range ps.state.Taps {
			if c.Name != "" && other.Name == c.Name && other.Namespace == c.Namespace {
				return port.ErrNameInUse
			}
		}
		ps.state.Taps[index] = c
		return nil
	})
	if err != nil {
		return port.TapInfo{}, err
	}
	return tapInfo(index, c), nil
}

// open calls record unless the interface has a port or FailPorts has set an error.
func (ps *ports) open(index uint32, record func() error) error {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.portErr != nil {
		return ps.portErr
	}
	if ps.hasPortLocked(index) {
		return forward.ErrPortExists
	}
	return record()
}

func (ps *ports) hasPortLocked(index uint32) bool {
	_, tap := ps.state.Taps[index]
	_, link := ps.state.AFPackets[index]
	_, memif := ps.state.Memifs[index]
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
func (ps *ports) OpenAFPacket(index uint32, c port.AFPacketConfig) (port.AFPacketInfo, error) {
	if err := ps.open(index, func() error { ps.state.AFPackets[index] = c; return nil }); err != nil {
		return port.AFPacketInfo{}, err
	}
	return port.AFPacketInfo{Ifindex: int(index) + 1, MTU: 1500}, nil
}

// AdoptTap records a tap.
func (ps *ports) AdoptTap(index uint32, c port.TapConfig, _ []int) error {
	_, err := ps.OpenTap(index, c)
	return err
}

// AdoptAFPacket records an af_packet port.
func (ps *ports) AdoptAFPacket(index uint32, c port.AFPacketConfig, _ []int) error {
	_, err := ps.OpenAFPacket(index, c)
	return err
}

// AdoptMemifSocket accepts any socket.
func (*ports) AdoptMemifSocket(forward.OpenSocket) error { return nil }

// AdoptMemif returns the client that the other engine had.
func (*ports) AdoptMemif(_ uint32, from forward.OpenPort) (*port.MemifPeer, error) {
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
func (ps *ports) OpenMemif(index uint32, c port.MemifConfig) error {
	return ps.open(index, func() error { ps.state.Memifs[index] = c; return nil })
}

// ClosePort deletes the port of an interface.
func (ps *ports) ClosePort(index uint32) error {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if !ps.hasPortLocked(index) {
		return forward.ErrNoPort
	}
	delete(ps.state.Taps, index)
	delete(ps.state.AFPackets, index)
	delete(ps.state.Memifs, index)
	return nil
}

// links is a model.Links.
type links struct{ *recorder }

// SetInterface records an interface.
func (ls *links) SetInterface(index uint32, i forward.Interface) error {
	if index >= forward.MaxInterfaces {
		return forward.ErrNoInterface
	}
	i.Addresses = slices.Clone(i.Addresses)
	ls.change(func(s *State) { s.Interfaces[index] = i })
	return nil
}

// DelInterface deletes an interface and its neighbours.
func (ls *links) DelInterface(index uint32) {
	ls.change(func(s *State) {
		delete(s.Interfaces, index)
		delete(s.Neighbours, index)
		delete(s.Sessions, index)
	})
}

// SetNeighbour records a neighbour. As in the real engine a dynamic neighbour does not replace a static one.
func (ls *links) SetNeighbour(index uint32, a netip.Addr, m frame.MAC, static bool) (err error) {
	ls.change(func(s *State) {
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
func (ls *links) DelNeighbour(index uint32, a netip.Addr) {
	ls.change(func(s *State) {
		delete(s.Neighbours[index], a)
		if len(s.Neighbours[index]) == 0 {
			delete(s.Neighbours, index)
		}
	})
}

// fibs is a model.Fibs.
type fibs struct{ *recorder }

// AddTable adds an empty table, if it does not exist.
func (fs *fibs) AddTable(k forward.TableKey) {
	fs.change(func(s *State) {
		if s.Tables[k] == nil {
			s.Tables[k] = map[netip.Prefix]forward.Route{}
		}
	})
}

// DelTable deletes a table.
func (fs *fibs) DelTable(k forward.TableKey) {
	fs.change(func(s *State) { delete(s.Tables, k) })
}

// SetRoute records a route.
func (fs *fibs) SetRoute(k forward.TableKey, p netip.Prefix, r forward.Route) (err error) {
	r.Paths = slices.Clone(r.Paths)
	fs.change(func(s *State) {
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
func (fs *fibs) DelRoute(k forward.TableKey, p netip.Prefix) {
	fs.change(func(s *State) { delete(s.Tables[k], p) })
}

// SetProxies records the proxied addresses.
func (fs *fibs) SetProxies(p forward.Proxies) {
	fs.change(func(s *State) { s.Proxies = p })
}

// observer is a model.Observer.
type observer struct{ *recorder }

// Counters returns values that depend on the index.
func (o *observer) Counters(index uint32) forward.Counters {
	return forward.Counters{RxPackets: uint64(index), RxBytes: 100 * uint64(index)}
}

// Drops returns a fixed value.
func (o *observer) Drops() map[string]uint64 {
	return map[string]uint64{"ethernet-input/unknown ethernet type": 7}
}

// StartTrace does nothing.
func (o *observer) StartTrace(forward.InputNode, int) {}

// ClearTrace does nothing.
func (o *observer) ClearTrace() {}

// TracePaths returns one path of one worker.
func (o *observer) TracePaths(nameOf func(uint32) string) [][]string {
	return [][]string{{"a path on " + nameOf(1)}}
}

// Trace returns one line.
func (o *observer) Trace(index uint32, n int) []string {
	return []string{fmt.Sprintf("a frame on %d, of %d at most", index, n)}
}

// Loads returns the load of one worker.
func (o *observer) Loads() []forward.Load {
	return []forward.Load{{Elapsed: time.Minute, Asleep: 45 * time.Second, Sleeps: 7, Vectors: 10, Frames: 25}}
}

// Sessions returns the sessions that RestoreSessions set.
func (o *observer) Sessions(index uint32) []forward.Session {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.state.Sessions[index])
}

// RestoreSessions records sessions.
func (o *observer) RestoreSessions(index uint32, all []forward.Session) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(all) > 0 {
		o.state.Sessions[index] = slices.Clone(all)
	}
}
