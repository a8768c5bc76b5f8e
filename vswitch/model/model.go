// Package model is the embedded dataplane's control state: it validates what the binary API asks, answers its dumps with VPP's semantics, and drives the packet path.
package model

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/port"
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

// Engine is the packet path as the model drives it; *forward.Engine is one. The model calls all
// but Meter's methods under its lock, one at a time.
type Engine interface {
	Ports
	Links
	Fibs
	Bridges
	Meter
}

// Ports opens and closes the machine's ends of interfaces.
type Ports interface {
	OpenTap(index uint32, c port.TapConfig) (port.TapInfo, error)
	OpenAFPacket(index uint32, c port.AFPacketConfig) (port.AFPacketInfo, error)
	OpenMemif(index uint32, c port.MemifConfig) error
	ClosePort(index uint32) error
}

// Links are interfaces and their neighbours. Publish shows the workers what all of Links and Fibs have changed.
type Links interface {
	SetInterface(index uint32, i forward.Interface) error
	DelInterface(index uint32)
	SetNeighbour(index uint32, a netip.Addr, m frame.MAC, static bool) error
	DelNeighbour(index uint32, a netip.Addr)
	Publish()
}

// Fibs are the tables that packets are routed by, and the addresses in them that interfaces answer for.
type Fibs interface {
	AddTable(k forward.TableKey)
	DelTable(k forward.TableKey)
	SetRoute(k forward.TableKey, p netip.Prefix, r forward.Route) error
	DelRoute(k forward.TableKey, p netip.Prefix)
	SetProxies(p forward.Proxies)
}

// Bridges are bridge domains. All but SetBridge publish, and wait for the workers.
type Bridges interface {
	SetBridge(b forward.Bridge) error
	DelBridge(id uint32)
	FlushMACs(f forward.MACFilter)
	ForgetMAC(bridge uint32, m frame.MAC, on uint32) bool
	LearnedMACs(bridge uint32) []forward.LearnedMAC
}

// Meter tells what the packet path has done.
type Meter interface {
	Counters(index uint32) forward.Counters
	Drops() map[string]uint64
	Trace(index uint32, n int) []string
}

// Retval is one of VPP's API errors (src/vnet/error.h), and an error.
type Retval int32

// The errors that the model answers, named as VPP names them.
const (
	Unspecified                 Retval = -1
	InvalidSwIfIndex            Retval = -2
	NoSuchFIB                   Retval = -3
	NoSuchEntry                 Retval = -6
	InvalidValue                Retval = -7
	InvalidValue2               Retval = -8
	Unimplemented               Retval = -9
	InvalidSwIfIndex2           Retval = -10
	SyscallError1               Retval = -11
	SyscallError2               Retval = -12
	SyscallError3               Retval = -13
	SyscallError4               Retval = -14
	FeatureDisabled             Retval = -30
	InvalidRegistration         Retval = -31
	NoPathsInRoute              Retval = -52
	NoMatchingInterface         Retval = -54
	InvalidSrcAddress           Retval = -57
	InvalidDstAddress           Retval = -58
	AddressLengthMismatch       Retval = -59
	AddressNotFoundForInterface Retval = -60
	AddressNotDeletable         Retval = -61
	IP6NotEnabled               Retval = -62
	SubifAlreadyExists          Retval = -68
	InvalidInterface            Retval = -71
	InvalidArgument             Retval = -73
	UnexpectedInterfaceState    Retval = -74
	TunnelExist                 Retval = -75
	InvalidDecapNext            Retval = -76
	IfAlreadyExists             Retval = -79
	ValueExist                  Retval = -81
	SameSrcDst                  Retval = -82
	InvalidAddressFamily        Retval = -97
	AddressInUse                Retval = -105
	AddressFoundForInterface    Retval = -114
	EntryAlreadyExists          Retval = -116
	BDAlreadyExists             Retval = -119
	BDInUse                     Retval = -120
	BDNotModifiable             Retval = -121
	BDIDExceedMax               Retval = -122
	Unsupported                 Retval = -126
	DuplicateIfAddress          Retval = -127
	ACLInUseInbound             Retval = -142
	InstanceInUse               Retval = -147
	NonEthernet                 Retval = -151
	BDAlreadyHasBVI             Retval = -152
	FIBPathUnsupportedNextHop   Retval = -157
	InitFailed                  Retval = -144
	NetlinkError                Retval = -145
	LimitExceeded               Retval = -162
	InvalidPrefixLength         Retval = -171
)

// Error names the number; the API's client names it by itself.
func (r Retval) Error() string { return "VPP API error " + strconv.Itoa(int(r)) }

// peerPause is how soon after the last news of a memif's client the next is not worth a line at Info.
const peerPause = 2 * time.Second

// Watch takes in what the packet path does by itself, until ctx ends.
func (m *Model) Watch(ctx context.Context, events <-chan forward.Event) {
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-events:
			m.Take(e)
		}
	}
}

// Take takes in one event. One about an interface that is gone is late, and nothing.
func (m *Model) Take(e forward.Event) {
	defer m.change()()
	i, ok := m.interfaces[e.Interface]
	if !ok {
		return
	}
	switch e.Kind {
	case forward.NeighbourLearned:
		n := Neighbour{Index: e.Interface, Addr: e.Addr, MAC: e.MAC}
		if err := m.addNeighbourLocked(i, n); err != nil {
			m.log.Debug("neighbour not learned", "interface", i.Name, "address", e.Addr, "err", err)
		}
	case forward.PortDown:
		m.log.Warn("port failed", "interface", i.Name, "err", e.Err)
		m.setPortLocked(i, true)
	case forward.PortUp:
		m.log.Info("port recovered", "interface", i.Name)
		m.setPortLocked(i, false)
	case forward.PeerConnected, forward.PeerGone:
		m.logPeerLocked(i, e)
		i.peer = e.Peer
		m.setPortLocked(i, e.Kind == forward.PeerGone)
	}
}

// logPeerLocked says who came and went, but not of a client that does so all the time: it would fill the log.
func (m *Model) logPeerLocked(i *iface, e forward.Event) {
	level, now := slog.LevelInfo, m.now()
	if now.Sub(i.peerSeen) < peerPause && e.Kind == forward.PeerConnected {
		i.peerQuiet = true
	} else if e.Kind == forward.PeerConnected {
		i.peerQuiet = false
	}
	if i.peerQuiet {
		level = slog.LevelDebug
	}
	i.peerSeen = now
	if e.Kind == forward.PeerGone {
		m.log.Log(context.Background(), level, "memif disconnected", "interface", i.Name, "err", e.Err)
		return
	}
	m.log.Log(context.Background(), level, "memif connected", "interface", i.Name, "peer", e.Peer.Name, "peerInterface", e.Peer.Interface)
}

func (m *Model) setPortLocked(i *iface, failed bool) {
	if !i.hasPort() || i.portFailed == failed {
		return
	}
	i.portFailed = failed
	// As in VPP a memif connects while it is down, and its link is up then.
	i.LinkUp = !failed && (i.AdminUp || i.memif != nil)
	m.reviewLocked(i)
	m.notify(InterfaceEvent{Index: i.Index, LinkUp: i.LinkUp})
}

// Traffic is an interface with what has passed through it.
type Traffic struct {
	Interface
	forward.Counters
}

// Traffic lists all interfaces with their counters.
func (m *Model) Traffic() []Traffic {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []Traffic
	for _, n := range m.indexesLocked() {
		list = append(list, Traffic{Interface: m.interfaces[n].Interface, Counters: m.engine.Counters(n)})
	}
	return list
}

// Drops are the packet path's drops by reason.
func (m *Model) Drops() map[string]uint64 { return m.engine.Drops() }

// Trace is what an interface's port received last.
type Trace struct {
	Name  string
	Lines []string
}

// SetTrace says how many frames of each port Traces tells; 0 for none. The packet path
// remembers the last ones always.
func (m *Model) SetTrace(frames int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.traced = frames
}

// Traces lists the ports that received something, with their last frames.
func (m *Model) Traces() []Trace {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []Trace
	for _, n := range m.indexesLocked() {
		if m.traced == 0 || !m.interfaces[n].hasPort() {
			continue
		}
		if lines := m.engine.Trace(n, m.traced); len(lines) > 0 {
			list = append(list, Trace{Name: m.interfaces[n].Name, Lines: lines})
		}
	}
	return list
}
