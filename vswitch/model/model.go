// Package model is the control plane of the embedded dataplane: it validates the requests of the binary API, answers
// its dumps with VPP's semantics, and configures the packet path.
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

// Model is the state of the control plane. Its methods are safe for concurrent use; the workers see each change as a
// whole. An error is a Retval where VPP would return one. Other errors are bugs or failures of the host.
type Model struct {
	engine Engine
	log    *slog.Logger
	now    func() time.Time

	mu         sync.Mutex
	notify     func(InterfaceEvent)
	interfaces map[uint32]*iface
	lastIndex  uint32
	fib        *fib
	neighbours map[forward.Family]int // number of neighbours
	bridges    *bridges
	macips     aclSet[forward.MACIPRule, forward.MACIPFilter]
	acls       aclSet[forward.ACLRule, forward.ACLFilter]
	policers   map[uint32]*policer
	countACLs  bool // the rules of ACLs count packets
	sockets    memifSockets
	proxyARPs  []forward.ProxyRange
	redirects  map[redirectKey]Path
	puntUDP    map[forward.Family]bool
	traced     int // maximum number of frames per port in Traces
}

// New returns a model with local0 and the default VRFs.
func New(engine Engine, log *slog.Logger) *Model {
	m := &Model{engine: engine, log: log, now: time.Now, notify: func(InterfaceEvent) {},
		interfaces: map[uint32]*iface{},
		neighbours: map[forward.Family]int{},
		bridges:    &bridges{engine: engine, log: log, byID: map[uint32]*bridge{}},
		macips: newACLSet(1<<16, checkMACIPRule, func(_ uint32, a MACIPACL) *forward.MACIPFilter {
			return forward.NewMACIPFilter(a.Rules)
		}),
		acls: newACLSet(1<<12, checkRule, func(index uint32, a IPACL) *forward.ACLFilter {
			return forward.NewACLFilter(index, a.Tag, a.Rules)
		}),
		sockets:   memifSockets{byID: map[uint32]*memifSocket{}},
		policers:  map[uint32]*policer{},
		redirects: map[redirectKey]Path{},
		puntUDP:   map[forward.Family]bool{},
	}
	m.fib = &fib{
		engine:       engine,
		log:          log,
		interfaces:   m.interfaces,
		tables:       map[forward.TableKey]*table{},
		tableDeleted: m.deleteTableProxiesLocked,
	}
	defer m.change()()
	for _, family := range families {
		m.fib.makeTable(forward.TableKey{Family: family}, "")
	}
	m.interfaces[0] = newIface(Interface{Name: "local0", DevType: "local"})
	m.syncLocked(m.interfaces[0])
	return m
}

// Notify sets the receiver of interface events. The model calls f in order and under its lock: f must not block and
// must not call the model.
func (m *Model) Notify(f func(InterfaceEvent)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.notify = f
}

// change begins a change. The returned function ends it and publishes it to the workers.
func (m *Model) change() func() {
	m.mu.Lock()
	return func() {
		defer m.mu.Unlock()
		m.engine.Publish()
	}
}

// indexesLocked returns the indexes of all interfaces in order.
func (m *Model) indexesLocked() []uint32 { return slices.Sorted(maps.Keys(m.interfaces)) }

// interfaceLocked returns the interface of the given index.
func (m *Model) interfaceLocked(index uint32) (*iface, error) {
	i, ok := m.interfaces[index]
	if !ok {
		return nil, InvalidSwIfIndex
	}
	return i, nil
}

// freeIndexLocked allocates the index of a new interface, the next free one after the last allocated index, so that
// indexes are not reused soon.
func (m *Model) freeIndexLocked() (uint32, error) {
	for range forward.MaxInterfaces {
		m.lastIndex = (m.lastIndex + 1) % forward.MaxInterfaces
		if _, taken := m.interfaces[m.lastIndex]; !taken {
			return m.lastIndex, nil
		}
	}
	return 0, LimitExceeded
}

// Engine is the packet path, implemented by *forward.Engine. The model calls all methods except the methods
// of Meter under its lock.
type Engine interface {
	Ports
	Links
	Fibs
	Bridges
	Observer
}

// Observer shows the packet path.
type Observer interface {
	Meter
	Tracer
	Sessions
}

// Ports opens and closes the host side of interfaces.
type Ports interface {
	OpenTap(index uint32, c port.TapConfig) (port.TapInfo, error)
	OpenAFPacket(index uint32, c port.AFPacketConfig) (port.AFPacketInfo, error)
	OpenMemif(index uint32, c port.MemifConfig) error
	ClosePort(index uint32) error
	Adopter
}

// Adopter continues the ports of another process.
type Adopter interface {
	AdoptTap(index uint32, c port.TapConfig, descriptors []int) error
	AdoptAFPacket(index uint32, c port.AFPacketConfig, descriptors []int) error
	AdoptMemifSocket(s forward.OpenSocket) error
	AdoptMemif(index uint32, from forward.OpenPort) (*port.MemifPeer, error)
}

// Links changes interfaces and their neighbours. Publish makes all changes of Links and Fibs visible to the workers.
type Links interface {
	SetInterface(index uint32, i forward.Interface) error
	DelInterface(index uint32)
	SetNeighbour(index uint32, a netip.Addr, m frame.MAC, static bool) error
	DelNeighbour(index uint32, a netip.Addr)
	Publish()
}

// Fibs changes the routing tables and the proxied addresses.
type Fibs interface {
	AddTable(k forward.TableKey)
	DelTable(k forward.TableKey)
	SetRoute(k forward.TableKey, p netip.Prefix, r forward.Route) error
	DelRoute(k forward.TableKey, p netip.Prefix)
	SetProxies(p forward.Proxies)
}

// Bridges changes bridge domains. All methods but SetBridge publish and wait for the workers.
type Bridges interface {
	SetBridge(b forward.Bridge) error
	DelBridge(id uint32)
	FlushMACs(f forward.MACFilter)
	ForgetMAC(bridge uint32, m frame.MAC, on uint32) bool
	LearnedMACs(bridge uint32) []forward.LearnedMAC
}

// Sessions are the sessions that ACLs opened, which a handover continues.
type Sessions interface {
	Sessions(index uint32) []forward.Session
	RestoreSessions(index uint32, all []forward.Session)
}

// Meter returns counters of the packet path.
type Meter interface {
	Counters(index uint32) forward.Counters
	Drops() map[string]uint64
	Loads() []forward.Load
}

// Tracer shows what happened to packets.
type Tracer interface {
	Trace(index uint32, n int) []string
	StartTrace(node forward.InputNode, n int)
	ClearTrace()
	TracePaths(nameOf func(index uint32) string) [][]string
}

// Retval is one of VPP's API errors (src/vnet/error.h).
type Retval int32

// The errors of the model, with VPP's names.
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
	InvalidVLAN                 Retval = -55
	VLANAlreadyExists           Retval = -56
	NoSuchNode                  Retval = -63
	InvalidSrcAddress           Retval = -57
	InvalidDstAddress           Retval = -58
	AddressLengthMismatch       Retval = -59
	AddressNotFoundForInterface Retval = -60
	AddressNotDeletable         Retval = -61
	IP6NotEnabled               Retval = -62
	SubifAlreadyExists          Retval = -68
	InvalidInterface            Retval = -71
	InvalidVLANTagCount         Retval = -72
	InvalidArgument             Retval = -73
	UnexpectedInterfaceState    Retval = -74
	TunnelExist                 Retval = -75
	InvalidDecapNext            Retval = -76
	IfAlreadyExists             Retval = -79
	ValueExist                  Retval = -81
	SameSrcDst                  Retval = -82
	InvalidAddressFamily        Retval = -97
	InvalidSubSwIfIndex         Retval = -98
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
	ACLInUseOutbound            Retval = -143
	InstanceInUse               Retval = -147
	NonEthernet                 Retval = -151
	BDAlreadyHasBVI             Retval = -152
	FIBPathUnsupportedNextHop   Retval = -157
	InitFailed                  Retval = -144
	NetlinkError                Retval = -145
	LimitExceeded               Retval = -162
	InvalidPrefixLength         Retval = -171
)

// Error returns the number. Clients of the API have its name.
func (r Retval) Error() string { return "VPP API error " + strconv.Itoa(int(r)) }

// Watch handles the events of the packet path until ctx ends.
func (m *Model) Watch(ctx context.Context, events <-chan forward.Event) {
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-events:
			m.Handle(e)
		}
	}
}

// Handle handles one event. It ignores events of deleted interfaces.
func (m *Model) Handle(e forward.Event) {
	_ = m.withInterface(e.Interface, func(i *iface) error {
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
			i.peer.MemifPeer = e.Peer
			m.setPortLocked(i, e.Kind == forward.PeerGone)
		}
		return nil
	})
}

func (m *Model) setPortLocked(i *iface, failed bool) {
	if !i.hasPort() || i.portFailed == failed {
		return
	}
	i.portFailed = failed
	// As in VPP the link of a memif is up while a client is connected, even if the interface is down.
	i.LinkUp = !failed && (i.AdminUp || kindOf[Memif](i) != nil)
	m.fib.reinstall(i)
	m.notify(InterfaceEvent{Index: i.Index, LinkUp: i.LinkUp})
}

// Traffic is an interface with its counters.
type Traffic struct {
	Interface
	forward.Counters
}

// Traffic lists all interfaces with their counters.
func (m *Model) Traffic() []Traffic {
	return listInterfaces(m, NoIndex, func(i *iface) (Traffic, bool) {
		return Traffic{i.Interface, m.engine.Counters(i.Index)}, true
	})
}

// Drops returns the number of dropped packets by reason.
func (m *Model) Drops() map[string]uint64 { return m.engine.Drops() }

// Loads returns the load of the workers.
func (m *Model) Loads() []forward.Load { return m.engine.Loads() }

// Trace holds the last frames that a port received.
type Trace struct {
	Name  string
	Lines []string
}

// SetTrace sets the maximum number of frames per port in Traces. The packet path always records the last frames.
func (m *Model) SetTrace(frames int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.traced = frames
}

// Traces lists the ports that have received frames, with the last frames.
func (m *Model) Traces() []Trace {
	return listInterfaces(m, NoIndex, func(i *iface) (t Trace, ok bool) {
		if m.traced > 0 && i.hasPort() {
			t = Trace{Name: i.Name, Lines: m.engine.Trace(i.Index, m.traced)}
		}
		return t, len(t.Lines) > 0
	})
}
