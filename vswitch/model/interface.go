package model

import (
	"net/netip"
	"strconv"
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
		Bare: i.memif != nil && i.memif.Mode == MemifIP, MACIP: m.sendersLocked(i), ACL: i.filter, ProxyARP: i.proxyARP, ProxyND: i.proxyND,
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

// SetAdminUp sets an interface up or down. The links of taps and loopbacks follow, as in VPP.
func (m *Model) SetAdminUp(index uint32, up bool) error {
	defer m.change()()
	i, err := m.interfaceLocked(index)
	if err != nil {
		return err
	}
	if i.AdminUp == up {
		return nil
	}
	hasLink := i.ethernet || i.hasPort()
	linkCame := up && hasLink && !i.LinkUp
	i.AdminUp = up
	if hasLink {
		i.LinkUp = up && !i.portFailed
	}
	if !up {
		m.forgetLearnedLocked(i, everything)
	}
	m.setEngineLocked(i)
	m.connectLocked(i)
	m.reviewLocked(i)
	if !up {
		m.flushLocked(i.bridge, i)
	}
	m.notify(InterfaceEvent{Index: index, AdminUp: up, LinkUp: linkCame && i.LinkUp})
	return nil
}

// SetMTU sets the MTUs by protocol, in the order of Interface.MTU. IPv4 and IPv6 must come out equal:
// the packet path knows one for both.
func (m *Model) SetMTU(index uint32, mtu [4]uint32) error {
	defer m.change()()
	i, err := m.interfaceLocked(index)
	if err != nil {
		return err
	}
	if protocolMTU(mtu, 1) != protocolMTU(mtu, 2) {
		return Unsupported
	}
	i.MTU = mtu
	m.setEngineLocked(i)
	return nil
}

// protocolMTU is the MTU for one protocol: its own where it has one below that of layer 3.
// The kernel takes no frame longer than 64 KiB.
func protocolMTU(mtu [4]uint32, protocol int) uint32 {
	n := mtu[0]
	if own := mtu[protocol]; own != 0 && own < n {
		n = own
	}
	return min(n, 1<<16-1)
}

// SetLinkMTU sets the MTU of the device, and that of layer 3 with it. A loopback has no device to set it on.
func (m *Model) SetLinkMTU(index uint32, mtu int) error {
	defer m.change()()
	i, err := m.interfaceLocked(index)
	switch {
	case err != nil:
		return err
	case !i.ethernet:
		return FeatureDisabled
	case i.LinkMTU == mtu:
		return nil
	case !i.hasPort() && i.vxlan == nil:
		return Unsupported
	}
	i.LinkMTU, i.MTU[0] = mtu, uint32(mtu)
	m.setEngineLocked(i)
	return nil
}

// SetMAC sets an Ethernet interface's address. Its IPv6 link-local address stays, as in VPP.
func (m *Model) SetMAC(index uint32, mac frame.MAC) error {
	defer m.change()()
	i, err := m.interfaceLocked(index)
	if err != nil {
		return err
	}
	if !i.ethernet {
		return Unimplemented
	}
	old := i.MAC
	i.MAC = mac
	m.setEngineLocked(i)
	m.macChangedLocked(i, old)
	return nil
}

// MAC is an interface's address, zero for one that has none.
func (m *Model) MAC(index uint32) (frame.MAC, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i, err := m.interfaceLocked(index)
	if err != nil {
		return frame.MAC{}, err
	}
	return i.MAC, nil
}

// SetTag sets an interface's tag, cut to 63 bytes. An empty one is refused.
func (m *Model) SetTag(index uint32, tag string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	i, err := m.interfaceLocked(index)
	if err != nil {
		return err
	}
	if tag = cutTag(tag); tag == "" {
		return InvalidValue
	}
	i.Tag = tag
	return nil
}

// ClearTag removes an interface's tag.
func (m *Model) ClearTag(index uint32) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	i, err := m.interfaceLocked(index)
	if err != nil {
		return err
	}
	i.Tag = ""
	return nil
}

// cutTag is what of a tag fits into a details message.
func cutTag(tag string) string {
	tag, _, _ = strings.Cut(tag, "\x00")
	return tag[:min(len(tag), maxTag)]
}

// SetGSO switches the segmentation of long packets at an output on or off. There is nothing to switch: what a port does not
// take whole is always segmented here.
func (m *Model) SetGSO(index uint32) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, err := m.interfaceLocked(index)
	return err
}

// maxLoopbacks is VPP's LOOPBACK_MAX_INSTANCE.
const maxLoopbacks = 16 << 10

// Loopback says what loopback to make.
type Loopback struct {
	MAC       frame.MAC // zero: de:ad:00:00:00 and the instance
	Specified bool      // Instance is given; else the lowest free one is taken
	Instance  uint32
}

// AddLoopback makes loop<instance> and returns its index.
func (m *Model) AddLoopback(l Loopback) (uint32, error) {
	defer m.change()()
	instance, err := m.loopbackInstanceLocked(l)
	if err != nil {
		return NoIndex, err
	}
	index, err := m.freeIndexLocked()
	if err != nil {
		return NoIndex, err
	}
	if l.MAC.IsZero() {
		l.MAC = frame.MAC{0: 0xde, 1: 0xad, 5: byte(instance)}
	}
	i := newEthernet(Interface{Index: index, Name: "loop" + strconv.Itoa(int(instance)), DevType: "Loopback", MAC: l.MAC})
	i.loopback = &instance
	if err := m.addLocked(i); err != nil {
		return NoIndex, err
	}
	return index, nil
}

// DeleteLoopback removes a loopback; another interface is InvalidSwIfIndex.
func (m *Model) DeleteLoopback(index uint32) error {
	defer m.change()()
	i, ok := m.interfaces[index]
	if !ok || i.loopback == nil {
		return InvalidSwIfIndex
	}
	m.removeLocked(i)
	return nil
}

func (m *Model) loopbackInstanceLocked(l Loopback) (uint32, error) {
	taken := map[uint32]bool{}
	for _, i := range m.interfaces {
		if i.loopback != nil {
			taken[*i.loopback] = true
		}
	}
	if l.Specified {
		if l.Instance >= maxLoopbacks || taken[l.Instance] {
			return 0, InvalidRegistration
		}
		return l.Instance, nil
	}
	for n := range uint32(maxLoopbacks) {
		if !taken[n] {
			return n, nil
		}
	}
	return 0, InvalidRegistration
}
