package model

import (
	"cmp"
	"errors"
	"net/netip"
	"strconv"
	"strings"

	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/frame"
)

// NoIndex is VPP's invalid interface index. In dumps it selects all interfaces.
const NoIndex = forward.NoInterface

// defaultMTU is the MTU of a new Ethernet interface in VPP.
const defaultMTU = 9000

// maxTag is the maximum length of a tag in sw_interface_details.
const maxTag = 63

// Interface holds the fields of sw_interface_details.
type Interface struct {
	Index   uint32
	Name    string
	DevType string // VPP's device class
	Tag     string
	MAC     frame.MAC
	AdminUp bool
	LinkUp  bool
	LinkMTU int       // maximum payload of a frame
	MTU     [4]uint32 // by protocol: L3, IPv4, IPv6, MPLS; 0 in the last three means the L3 MTU

	Sub        *Sub       // nil: not a sub-interface
	TagRewrite TagRewrite // in a bridge domain
}

// InterfaceEvent reports that an interface was created, deleted or changed. As in VPP the flags are only the ones that
// changed: if an interface with link up is set up, the event has AdminUp alone.
type InterfaceEvent struct {
	Index   uint32
	AdminUp bool
	LinkUp  bool
	Deleted bool
}

// iface is the state of an interface.
type iface struct {
	Interface
	ethernet   bool
	kind       any // *loopback, *Tap, *AFPacket, *Memif, *VXLAN or *Sub; nil for local0
	peer       peer
	macip      uint32 // index of the MACIP ACL, or NoIndex
	acls       ACLLists
	proxyARP   bool
	proxyND    bool
	proxyHosts map[netip.Addr]forward.TableKey // IPv6 hosts behind the interface for which other interfaces answer
	portFailed bool                            // the port has failed or, for a memif, has no client
	vrfs       map[forward.Family]uint32
	addresses  []netip.Prefix // in the order of AddAddress
	donor      uint32         // interface with the addresses that this one uses, or NoIndex
	ip6        ip6
	neighbours map[netip.Addr]*neighbour
	bridge     *bridge               // or nil
	mirrors    map[uint32]SpanState  // by target
	policers   [policings]uint32     // indexes by direction, or NoIndex
	connected  map[routeKey]fibRoute // routes of the addresses
	routes     map[routeKey]struct{} // routes with a path over the interface
}

func newIface(i Interface) *iface {
	return &iface{
		Interface:  i,
		donor:      NoIndex,
		macip:      NoIndex,
		policers:   noPolicers,
		vrfs:       map[forward.Family]uint32{},
		neighbours: map[netip.Addr]*neighbour{},
		proxyHosts: map[netip.Addr]forward.TableKey{},
		connected:  map[routeKey]fibRoute{},
		routes:     map[routeKey]struct{}{},
	}
}

// newEthernet returns an interface with a MAC address and VPP's default MTU.
func newEthernet(i Interface) *iface {
	i.LinkMTU = defaultMTU
	i.MTU[0] = defaultMTU
	e := newIface(i)
	e.ethernet = true
	return e
}

// kindOf returns the properties of an interface of kind K, or nil.
func kindOf[K any](i *iface) *K {
	k, _ := i.kind.(*K)
	return k
}

// hasPort reports whether the interface has a port of the host.
func (i *iface) hasPort() bool {
	switch i.kind.(type) {
	case *Tap, *AFPacket, *Memif:
		return true
	}
	return false
}

// table returns the VRF of the interface for one family.
func (i *iface) table(f forward.Family) forward.TableKey {
	return forward.TableKey{Family: f, ID: i.vrfs[f]}
}

// withInterface calls f with the interface of the given index, as one change.
func (m *Model) withInterface(index uint32, f func(i *iface) error) error {
	defer m.change()()
	i, err := m.interfaceLocked(index)
	if err != nil {
		return err
	}
	return f(i)
}

// listInterfaces returns the details of the interface of the given index, or for NoIndex of all by index. It skips
// interfaces for which details returns false.
func listInterfaces[D any](m *Model, index uint32, details func(i *iface) (d D, ok bool)) []D {
	m.mu.Lock()
	defer m.mu.Unlock()
	indexes := []uint32{index}
	if index == NoIndex {
		indexes = m.indexesLocked()
	}
	var list []D
	for _, n := range indexes {
		if i := m.interfaces[n]; i != nil {
			if d, ok := details(i); ok {
				list = append(list, d)
			}
		}
	}
	return list
}

// listKind is listInterfaces for the interfaces of kind K.
func listKind[K, D any](m *Model, index uint32, details func(i *iface, k *K) D) []D {
	return listInterfaces(m, index, func(i *iface) (d D, ok bool) {
		if k := kindOf[K](i); k != nil {
			return details(i, k), true
		}
		return d, false
	})
}

// chooseInstance returns the instance number for a new interface of kind K: the wanted one, or for NoIndex the lowest
// free one. It returns false if an interface of this kind has the wanted number.
func chooseInstance[K any](m *Model, want uint32, instance func(*K) uint32) (uint32, bool) {
	taken := map[uint32]bool{}
	for _, i := range m.interfaces {
		if k := kindOf[K](i); k != nil {
			taken[instance(k)] = true
		}
	}
	if want != NoIndex {
		return want, !taken[want]
	}
	n := uint32(0)
	for taken[n] {
		n++
	}
	return n, true
}

// deleteKind deletes an interface of kind K. For other interfaces it returns InvalidSwIfIndex.
func deleteKind[K any](m *Model, index uint32) error {
	return m.withInterface(index, func(i *iface) error {
		if kindOf[K](i) == nil {
			return InvalidSwIfIndex
		}
		m.deleteLocked(i)
		return nil
	})
}

// addLocked adds a new interface and returns its index. If the engine rejects it, addLocked closes its port and
// returns NoIndex.
func (m *Model) addLocked(i *iface) (uint32, error) {
	m.interfaces[i.Index] = i
	if err := m.engine.SetInterface(i.Index, m.engineInterfaceLocked(i)); err != nil {
		delete(m.interfaces, i.Index)
		if i.hasPort() {
			err = errors.Join(err, m.engine.ClosePort(i.Index))
		}
		return NoIndex, err
	}
	m.notify(InterfaceEvent{Index: i.Index, LinkUp: i.LinkUp})
	return i.Index, nil
}

// syncLocked writes the interface to the engine.
func (m *Model) syncLocked(i *iface) {
	if err := m.engine.SetInterface(i.Index, m.engineInterfaceLocked(i)); err != nil {
		m.log.Error("packet path rejected an interface", "interface", i.Name, "err", err)
	}
}

// syncWithUnnumberedLocked writes the interface, and the unnumbered interfaces that use its addresses, to the engine.
func (m *Model) syncWithUnnumberedLocked(i *iface) {
	m.syncLocked(i)
	for _, other := range m.interfaces {
		if other.donor == i.Index && other != i {
			m.syncLocked(other)
		}
	}
}

// engineInterfaceLocked returns the interface for the engine.
func (m *Model) engineInterfaceLocked(i *iface) forward.Interface {
	memif := kindOf[Memif](i)
	f := forward.Interface{
		Up:         i.AdminUp,
		MTU:        i.ipMTU(),
		MAC:        i.MAC,
		Table4:     i.vrfs[forward.IP4],
		Table6:     i.vrfs[forward.IP6],
		LinkLocal:  i.ip6.linkLocal,
		IP6Enabled: i.ip6.on() || i.donor != NoIndex,
		Bare:       memif != nil && memif.Mode == MemifIP,
		MACIP:      m.macips.filter(i.macip), ACL: m.accessListsLocked(i), ProxyARP: i.proxyARP, ProxyND: i.proxyND,
		Redirect4: m.redirectLocked(i, forward.IP4), Redirect6: m.redirectLocked(i, forward.IP6),
	}
	if v := kindOf[VXLAN](i); v != nil {
		f.Tunnel = v.tunnel()
	}
	f.Sub = i.engineSub()
	f.Mirrors = i.engineMirrors()
	f.PoliceInput = m.bucketLocked(i, PoliceInput)
	f.PoliceOutput = m.bucketLocked(i, PoliceOutput)
	for _, p := range m.addressesLocked(i) {
		f.Addresses = append(f.Addresses, p.Addr())
		f.IP6Enabled = f.IP6Enabled || p.Addr().Is6()
	}
	return f
}

// ipMTU returns the IP MTU. SetMTU keeps the MTUs of IPv4 and IPv6 equal.
func (i *iface) ipMTU() int { return int(protocolMTU(i.MTU, 1)) }

// InterfaceFilter selects interfaces as sw_interface_dump does: a name takes precedence over an index,
// and the indexes 0 and NoIndex select all.
type InterfaceFilter struct {
	Index  uint32
	ByName bool
	Name   string // substring of the name, case-insensitive
}

// Interfaces lists the interfaces that f selects, by index.
func (m *Model) Interfaces(f InterfaceFilter) []Interface {
	if f.ByName || f.Index == 0 {
		f.Index = NoIndex
	}
	return listInterfaces(m, f.Index, func(i *iface) (Interface, bool) {
		return m.detailsLocked(i), !f.ByName || strings.Contains(strings.ToLower(i.Name), strings.ToLower(f.Name))
	})
}

// detailsLocked returns the fields of an interface. The link of a sub-interface is its parent's.
func (m *Model) detailsLocked(i *iface) Interface {
	d := i.Interface
	if d.Sub != nil {
		parent := m.interfaces[d.Sub.Parent]
		d.LinkUp = parent.LinkUp
		d.LinkMTU = parent.LinkMTU
	}
	return d
}

// deleteLocked deletes an interface, its sub-interfaces, its port and all state that depends on it.
func (m *Model) deleteLocked(i *iface) {
	for sub := range m.subsLocked(i) {
		m.deleteLocked(sub)
	}
	if i.hasPort() {
		if err := m.engine.ClosePort(i.Index); err != nil && !errors.Is(err, forward.ErrNoPort) {
			m.log.Error("port not closed", "interface", i.Name, "err", err)
		}
	}
	if c := kindOf[Memif](i); c != nil {
		delete(m.sockets.byID[c.Socket].memifs, c.ID)
	}
	m.bridges.leave(i)
	for a := range i.neighbours {
		m.delNeighbourLocked(i, a)
	}
	i.addresses = nil
	i.donor = NoIndex
	i.AdminUp = false
	m.fib.updateConnected(i)
	for _, other := range m.interfaces {
		if other.donor == i.Index {
			m.setDonorLocked(other, NoIndex)
		}
	}
	m.detachMirrorsLocked(i)
	m.deleteProxiesLocked(i)
	m.fib.detach(i)
	m.detachRedirectsLocked(i)
	for _, f := range families {
		m.setTableLocked(i, forward.TableKey{Family: f})
	}
	delete(m.interfaces, i.Index)
	m.engine.DelInterface(i.Index)
	m.notify(InterfaceEvent{Index: i.Index, Deleted: true})
	if v := kindOf[VXLAN](i); v != nil {
		m.fib.release(v.table())
	}
}

// SetAdminUp sets an interface up or down. As in VPP the link of Ethernet interfaces follows, and a sub-interface
// cannot be up while its parent is down.
func (m *Model) SetAdminUp(index uint32, up bool) error {
	return m.withInterface(index, func(i *iface) error {
		if i.AdminUp == up {
			return nil
		}
		if sub := kindOf[Sub](i); sub != nil && up && !m.interfaces[sub.Parent].AdminUp {
			return Unspecified
		}
		wasUp := i.LinkUp
		i.AdminUp = up
		if i.ethernet || i.hasPort() {
			i.LinkUp = up && !i.portFailed
		}
		if !up {
			m.deleteLearnedLocked(i, func(netip.Addr) bool { return true })
		}
		m.syncLocked(i)
		m.fib.updateConnected(i)
		m.fib.reinstall(i)
		if !up {
			m.bridges.flush(i.bridge, i)
		}
		m.notify(InterfaceEvent{Index: index, AdminUp: up, LinkUp: i.LinkUp && !wasUp})
		return nil
	})
}

// SetMTU sets the MTUs by protocol, in the order of Interface.MTU. The resulting MTUs of IPv4 and IPv6 must be equal:
// the packet path has one for both.
func (m *Model) SetMTU(index uint32, mtu [4]uint32) error {
	return m.withInterface(index, func(i *iface) error {
		if protocolMTU(mtu, 1) != protocolMTU(mtu, 2) {
			return Unsupported
		}
		i.MTU = mtu
		m.syncLocked(i)
		return nil
	})
}

// protocolMTU returns the MTU of one protocol: its own one if it is below the L3 MTU.
// The kernel accepts frames up to 64 KiB.
func protocolMTU(mtu [4]uint32, protocol int) uint32 {
	return min(mtu[0], cmp.Or(mtu[protocol], mtu[0]), 1<<16-1)
}

// SetLinkMTU sets the MTU of the device and the L3 MTU. A loopback has no device.
func (m *Model) SetLinkMTU(index uint32, mtu int) error {
	return m.withInterface(index, func(i *iface) error {
		switch {
		case !i.ethernet:
			return FeatureDisabled
		case i.LinkMTU == mtu:
			return nil
		case kindOf[loopback](i) != nil:
			return Unsupported
		}
		i.LinkMTU = mtu
		i.MTU[0] = uint32(mtu)
		m.syncLocked(i)
		return nil
	})
}

// SetMAC sets the MAC address of an Ethernet interface. As in VPP its IPv6 link-local address does not change.
func (m *Model) SetMAC(index uint32, mac frame.MAC) error {
	return m.withInterface(index, func(i *iface) error {
		if !i.ethernet {
			return Unimplemented
		}
		old := i.MAC
		i.MAC = mac
		m.syncLocked(i)
		m.bridges.updateBVI(i, old)
		return nil
	})
}

// MAC returns the MAC address of an interface, zero without one.
func (m *Model) MAC(index uint32) (mac frame.MAC, err error) {
	err = m.withInterface(index, func(i *iface) error { mac = i.MAC; return nil })
	return mac, err
}

// SetTag sets the tag of an interface, truncated to 63 bytes. An empty tag is an error.
func (m *Model) SetTag(index uint32, tag string) error {
	return m.withInterface(index, func(i *iface) error {
		if tag = cutTag(tag); tag == "" {
			return InvalidValue
		}
		i.Tag = tag
		return nil
	})
}

// ClearTag removes the tag of an interface.
func (m *Model) ClearTag(index uint32) error {
	return m.withInterface(index, func(i *iface) error { i.Tag = ""; return nil })
}

// cutTag truncates a tag to the length of a details message.
func cutTag(tag string) string {
	tag, _, _ = strings.Cut(tag, "\x00")
	return tag[:min(len(tag), maxTag)]
}

// SetGSO accepts any setting for a known interface: the packet path always segments packets that a port does not
// accept.
func (m *Model) SetGSO(index uint32) error {
	return m.withInterface(index, func(*iface) error { return nil })
}

// maxLoopbacks is VPP's LOOPBACK_MAX_INSTANCE.
const maxLoopbacks = 16 << 10

// Loopback holds the parameters of AddLoopback.
type Loopback struct {
	MAC       frame.MAC // zero: de:ad:00:00:00 and the instance
	Specified bool      // use Instance; otherwise the lowest free one
	Instance  uint32
}

type loopback struct{ instance uint32 }

// AddLoopback creates loop<instance> and returns its index.
func (m *Model) AddLoopback(l Loopback) (uint32, error) {
	defer m.change()()
	want := NoIndex
	if l.Specified {
		want = min(l.Instance, maxLoopbacks)
	}
	instance, free := chooseInstance(m, want, func(l *loopback) uint32 { return l.instance })
	if !free || instance >= maxLoopbacks {
		return NoIndex, InvalidRegistration
	}
	if l.MAC.IsZero() {
		l.MAC = frame.MAC{0: 0xde, 1: 0xad, 5: byte(instance)}
	}
	index, err := m.freeIndexLocked()
	if err != nil {
		return NoIndex, err
	}
	i := newEthernet(Interface{
		Index:   index,
		Name:    "loop" + strconv.Itoa(int(instance)),
		DevType: "Loopback",
		MAC:     l.MAC,
	})
	i.kind = &loopback{instance}
	return m.addLocked(i)
}

// DeleteLoopback deletes a loopback. For other interfaces it returns InvalidSwIfIndex.
func (m *Model) DeleteLoopback(index uint32) error { return deleteKind[loopback](m, index) }
