package model

import (
	"bytes"
	"encoding/gob"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/weftnet/weft/vswitch/forward"
)

// StateVersion is the version of State, which both processes of a handover must have. A change of State, of a type in
// it or of the meaning of a field needs a new version.
const StateVersion = 4

// State is the whole state of a model, which Restore puts into another one. It includes the secrets of memifs. Derived
// state, such as the users of VRFs, is not in it, nor are the MACs and counters of the packet path.
// Ports are passed beside it.
type State struct {
	LastIndex  uint32 // see Interfaces.freeIndexLocked
	LastRoute  uint32 // see fib.lastEntry
	Traced     int
	Interfaces []InterfaceState
	Tables     []TableState
	Bridges    []BridgeState
	ACLs       []IPACLDetails
	NextACL    uint32
	CountACLs  bool
	MACIPs     []MACIPDetails
	NextMACIP  uint32
	Policers   []PolicerState
	Sockets    []SocketState
	ProxyARPs  []forward.ProxyRange
	Redirects  []RedirectState
	PuntUDP    []forward.Family
}

// InterfaceState is an interface with all that belongs to it.
type InterfaceState struct {
	Interface
	Loopback   *LoopbackState // at most one of these five, or Sub
	Tap        *Tap
	AFPacket   *AFPacket
	Memif      *Memif
	VXLAN      *VXLAN
	MACIP      uint32
	ACLs       ACLLists
	Sessions   []forward.Session // of its ACLs
	Mirrors    map[uint32]SpanState
	Policers   [policings]uint32
	ProxyARP   bool
	ProxyND    bool
	ProxyHosts []ProxyHostState
	PortFailed bool
	VRF4, VRF6 uint32
	Addresses  []netip.Prefix
	Donor      uint32
	LinkLocal  netip.Addr
	IP6Locks   int
	Neighbours []Neighbour
}

// LoopbackState is the kind of a loopback.
type LoopbackState struct{ Instance uint32 }

// ProxyHostState is a host of InterfaceState.ProxyHosts with its VRF.
type ProxyHostState struct {
	Addr  netip.Addr
	Table uint32
}

// TableState is a VRF's table with its routes.
type TableState struct {
	Table
	ByAPI  bool
	Routes []RouteState
}

// RouteState is the route of one source to a prefix.
type RouteState struct {
	Prefix, Written netip.Prefix // Written is the prefix as it was given, for dumps
	Number          uint32       // of the prefix
	Source          Source
	Attached        bool
	RouteWritten    netip.Prefix
	Paths           []PathState
}

// PathState is a path.
type PathState struct {
	Path
	Gone bool
}

// BridgeState is a bridge domain.
type BridgeState struct {
	Bridge
	Index   int
	BVI     uint32
	Members []BridgeMember
	Fixed   []L2Entry
}

// PolicerState is a policer. Its bucket is full after a handover.
type PolicerState struct {
	Policer
	Index uint32
}

// SocketState is a memif socket.
type SocketState struct {
	ID   uint32
	Path string
}

// RedirectState is a punt redirect.
type RedirectState struct {
	Rx     uint32
	Family forward.Family
	Path   PathState
}

// Encode returns the state as bytes.
func (s *State) Encode() ([]byte, error) {
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(s); err != nil {
		return nil, fmt.Errorf("encode state: %w", err)
	}
	return b.Bytes(), nil
}

// errTrailing means that bytes follow the state.
var errTrailing = errors.New("bytes after the end")

// DecodeState decodes what Encode returned. Restore validates it.
func DecodeState(b []byte) (*State, error) {
	var s State
	r := bytes.NewReader(b)
	err := gob.NewDecoder(r).Decode(&s)
	if err == nil && r.Len() > 0 {
		err = errTrailing
	}
	if err != nil {
		return nil, fmt.Errorf("decode state: %w", err)
	}
	return &s, nil
}

// State returns the state. No change may follow if it is to be restored elsewhere.
func (m *Model) State() *State {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := &State{
		LastIndex: m.Interfaces.lastIndex,
		Traced:    m.Traces.frames,
	}
	now := time.Now()
	for _, index := range m.Interfaces.indexesLocked() {
		one := m.Interfaces.byIndex[index].state(now)
		one.Sessions = m.engine.Sessions(index)
		s.Interfaces = append(s.Interfaces, one)
	}
	m.MemifSockets.stateLocked(s)
	m.Tables.stateLocked(s)
	m.Bridges.stateLocked(s)
	m.ACLs.stateLocked(s)
	m.MACIPs.stateLocked(s)
	m.Policers.stateLocked(s)
	m.Proxies.stateLocked(s)
	m.Punt.stateLocked(s)
	return s
}

func (i *iface) state(now time.Time) InterfaceState {
	s := InterfaceState{
		Interface:  i.Interface,
		MACIP:      i.macip,
		ACLs:       i.acls,
		Mirrors:    maps.Clone(i.mirrors),
		Policers:   i.policers,
		ProxyARP:   i.proxyARP,
		ProxyND:    i.proxyND,
		PortFailed: i.portFailed,
		VRF4:       i.vrfs[forward.IP4],
		VRF6:       i.vrfs[forward.IP6],
		Addresses:  slices.Clone(i.addresses),
		Donor:      i.donor,
		LinkLocal:  i.ip6.linkLocal, IP6Locks: i.ip6.locks,
		Tap: kindOf[Tap](i), AFPacket: kindOf[AFPacket](i), Memif: kindOf[Memif](i), VXLAN: kindOf[VXLAN](i),
	}
	if l := kindOf[loopback](i); l != nil {
		s.Loopback = &LoopbackState{l.instance}
	}
	for a, table := range i.proxyHosts {
		s.ProxyHosts = append(s.ProxyHosts, ProxyHostState{a, table.ID})
	}
	for a, n := range i.neighbours {
		s.Neighbours = append(s.Neighbours, Neighbour{
			Addr:    a,
			MAC:     n.mac,
			Static:  n.static,
			NoRoute: n.noRoute,
			Age:     now.Sub(n.updated),
		})
	}
	return s
}

// path returns the path of a state.
func (p PathState) path() Path {
	p.gone = p.Gone
	return p.Path
}

// kind returns the interface's kind; false: it has more than one.
func (s *InterfaceState) kind() (kind any, one bool) {
	count := 0
	if s.Loopback != nil {
		kind = &loopback{s.Loopback.Instance}
		count = count + 1
	}
	if s.Tap != nil {
		kind = s.Tap
		count = count + 1
	}
	if s.AFPacket != nil {
		kind = s.AFPacket
		count = count + 1
	}
	if s.Memif != nil {
		kind = s.Memif
		count = count + 1
	}
	if s.VXLAN != nil {
		kind = s.VXLAN
		count = count + 1
	}
	if s.Sub != nil {
		kind = s.Sub
		count = count + 1
	}
	return kind, count <= 1
}
