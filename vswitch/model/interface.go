package model

import (
	"net/netip"
	"strings"
	"time"

	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/port"
)

// NoIndex is the interface index that names none, or in a dump all.
const NoIndex = forward.NoInterface

// defaultMTU is the MTU of a new Ethernet interface in VPP.
const defaultMTU = 9000

// maxTag is what sw_interface_details can carry of a tag.
const maxTag = 63

// Interface is what the API tells of an interface.
type Interface struct {
	Index   uint32
	Name    string
	DevType string // VPP's device class
	Tag     string
	MAC     frame.MAC
	AdminUp bool
	LinkUp  bool
	LinkMTU int       // the longest payload of a frame
	MTU     [4]uint32 // by protocol: L3, IPv4, IPv6, MPLS; 0 in the last three: as L3
}

// InterfaceEvent tells that an interface came, went or changed. As in VPP the flags say only what
// has just become so: an interface that is set up has AdminUp alone if its link was up before.
type InterfaceEvent struct {
	Index   uint32
	AdminUp bool
	LinkUp  bool
	Deleted bool
}

// iface is an interface with all that hangs on it.
type iface struct {
	Interface
	ethernet   bool
	loopback   *uint32 // its instance
	tap        *Tap
	afPacket   *AFPacket
	memif      *Memif
	vxlan      *vxlan
	peer       *port.MemifPeer    // a memif's, while it is connected
	peerSeen   time.Time          // when a peer came or went last
	peerQuiet  bool               // it does so too often to be logged
	macip      uint32             // the list that judges senders, or NoIndex
	acls       []uint32           // for what it receives, in order
	filter     *forward.ACLFilter // their rules, or nil
	proxyARP   bool
	proxyND    bool
	proxyHosts map[netip.Addr]forward.TableKey // IPv6 hosts that others answer for, and where
	portFailed bool                            // the port has erred and is not back yet, or has no peer
	table4     uint32
	table6     uint32
	addresses  []netip.Prefix // as they were added
	donor      uint32         // whose addresses it uses, or NoIndex
	linkLocal  netip.Addr     // valid: IPv6 is on
	ip6Locks   int            // how many times IPv6 was asked for
	neighbours map[netip.Addr]*neighbour
	bridge     *bridge               // that it is in, or nil
	connected  map[routeKey]fibRoute // the routes that its addresses make
	carries    map[routeKey]struct{} // the routes with a path over it
}

func newIface(i Interface) *iface {
	return &iface{Interface: i, donor: NoIndex, macip: NoIndex, neighbours: map[netip.Addr]*neighbour{},
		connected: map[routeKey]fibRoute{}, carries: map[routeKey]struct{}{}}
}

// newEthernet is an interface with a MAC address and VPP's default MTU.
func newEthernet(i Interface) *iface {
	i.LinkMTU, i.MTU[0] = defaultMTU, defaultMTU
	e := newIface(i)
	e.ethernet = true
	return e
}

// hasPort says that the interface has an end on the machine.
func (i *iface) hasPort() bool {
	return i.tap != nil || i.afPacket != nil || i.memif != nil
}

// table is the VRF of the interface in one family.
func (i *iface) table(f forward.Family) forward.TableKey {
	if f == forward.IP4 {
		return forward.TableKey{Family: f, ID: i.table4}
	}
	return forward.TableKey{Family: f, ID: i.table6}
}

func (i *iface) setTable(k forward.TableKey) {
	if k.Family == forward.IP4 {
		i.table4 = k.ID
	} else {
		i.table6 = k.ID
	}
}

// addLocked takes a new interface into the model. If the engine refuses it nothing has changed.
func (m *Model) addLocked(i *iface) error {
	m.interfaces[i.Index] = i
	if err := m.engine.SetInterface(i.Index, m.forwardLocked(i)); err != nil {
		delete(m.interfaces, i.Index)
		return err
	}
	m.notify(InterfaceEvent{Index: i.Index, LinkUp: i.LinkUp})
	return nil
}

// showLocked tells the engine the interface's state and that of the interfaces that borrow its addresses.
func (m *Model) showLocked(i *iface) {
	m.setEngineLocked(i)
	for _, other := range m.interfaces {
		if other.donor == i.Index && other != i {
			m.setEngineLocked(other)
		}
	}
}

func (m *Model) setEngineLocked(i *iface) {
	if err := m.engine.SetInterface(i.Index, m.forwardLocked(i)); err != nil {
		m.log.Error("packet path refused an interface", "interface", i.Name, "err", err)
	}
}

// forwardLocked is the interface as the engine needs it.
func (m *Model) forwardLocked(i *iface) forward.Interface {
	own := m.addressesLocked(i)
	f := forward.Interface{Up: i.AdminUp, MTU: i.ipMTU(), MAC: i.MAC, Table4: i.table4, Table6: i.table6,
		LinkLocal: i.linkLocal, IP6Enabled: i.linkLocal.IsValid() || i.donor != NoIndex,
		Bare: i.memif != nil && i.memif.Mode == MemifIP, Senders: m.sendersLocked(i), ACL: i.filter, ProxyARP: i.proxyARP, ProxyND: i.proxyND,
		Redirect4: m.redirectLocked(i, forward.IP4), Redirect6: m.redirectLocked(i, forward.IP6)}
	if i.vxlan != nil {
		f.Tunnel = i.vxlan.tunnel()
	}
	for _, p := range own {
		f.Addresses = append(f.Addresses, p.Addr())
		f.IP6Enabled = f.IP6Enabled || p.Addr().Is6()
	}
	return f
}

// ipMTU is the longest IP packet of both families, which sw_interface_set_mtu keeps equal.
func (i *iface) ipMTU() int {
	return int(protocolMTU(i.MTU, 1))
}

// InterfaceFilter chooses interfaces as sw_interface_dump does: a name wins over an index,
// and the indexes 0 and NoIndex mean all.
type InterfaceFilter struct {
	Index  uint32
	ByName bool
	Name   string // part of the name, in any case
}

// Interfaces lists the interfaces that f chooses, by index.
func (m *Model) Interfaces(f InterfaceFilter) []Interface {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !f.ByName && f.Index != NoIndex && f.Index != 0 {
		if i, ok := m.interfaces[f.Index]; ok {
			return []Interface{i.Interface}
		}
		return nil
	}
	var list []Interface
	for _, index := range m.indexesLocked() {
		i := m.interfaces[index]
		if !f.ByName || strings.Contains(strings.ToLower(i.Name), strings.ToLower(f.Name)) {
			list = append(list, i.Interface)
		}
	}
	return list
}

// removeLocked takes an interface out of everything; its port is closed already.
func (m *Model) removeLocked(i *iface) {
	m.leaveBridgeLocked(i)
	for a := range i.neighbours {
		m.delNeighbourLocked(i, a)
	}
	i.addresses, i.donor, i.AdminUp = nil, NoIndex, false
	m.connectLocked(i)
	for _, other := range m.interfaces {
		if other.donor == i.Index {
			other.donor = NoIndex
			m.setEngineLocked(other)
			m.refineLocked(other)
		}
	}
	m.endProxiesLocked(i)
	m.abandonLocked(i)
	for _, f := range families {
		m.bindLocked(i, forward.TableKey{Family: f})
	}
	delete(m.interfaces, i.Index)
	m.engine.DelInterface(i.Index)
	m.notify(InterfaceEvent{Index: i.Index, Deleted: true})
}
