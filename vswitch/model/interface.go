package model

import (
	"cmp"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
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
	portFailed bool    // the port has failed or, for a memif, has no client
	bridge     *bridge // or nil
	applied
	layer3
	proxied
}

// applied are the features of an interface.
type applied struct {
	macip    uint32 // index of the MACIP ACL, or NoIndex
	acls     ACLLists
	policers [policings]uint32    // indexes by direction, or NoIndex
	mirrors  map[uint32]SpanState // by target
}

// layer3 is the part of an interface in its VRFs.
type layer3 struct {
	vrfs       map[forward.Family]uint32
	addresses  []netip.Prefix // in the order of Addresses.Add
	donor      uint32         // interface with the addresses that this one uses, or NoIndex
	ip6        ip6
	neighbours map[netip.Addr]*neighbour
	connected  map[routeKey]fibRoute // routes of the addresses
	routes     map[routeKey]struct{} // routes with a path over the interface
}

// proxied are the addresses that interfaces answer for.
type proxied struct {
	proxyARP   bool
	proxyND    bool
	proxyHosts map[netip.Addr]forward.TableKey // IPv6 hosts behind the interface for which other interfaces answer
}

func newIface(i Interface) *iface {
	return &iface{
		Interface: i,
		applied:   applied{macip: NoIndex, policers: noPolicers},
		layer3: layer3{
			vrfs:       map[forward.Family]uint32{},
			donor:      NoIndex,
			neighbours: map[netip.Addr]*neighbour{},
			connected:  map[routeKey]fibRoute{},
			routes:     map[routeKey]struct{}{},
		},
		proxied: proxied{proxyHosts: map[netip.Addr]forward.TableKey{}},
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

// Interfaces are the interfaces of the dataplane with the settings that do not depend on their kind.
type Interfaces struct {
	*barrier
	log       *slog.Logger
	byIndex   map[uint32]*iface
	lastIndex uint32
	notify    func(InterfaceEvent)
	features  []feature
	// deleteLocked deletes an interface with all state that depends on it.
	deleteLocked func(*iface)
}

// feature configures interfaces in the packet path.
type feature interface {
	// configureLocked sets the fields of the feature.
	configureLocked(i *iface, f *forward.Interface)
}

func newInterfaces(b *barrier, log *slog.Logger) *Interfaces {
	return &Interfaces{barrier: b, log: log, byIndex: map[uint32]*iface{}, notify: func(InterfaceEvent) {}}
}

// Notify sets the receiver of interface events. The model calls f in order and under its lock: f must not block and
// must not call the model.
func (is *Interfaces) Notify(f func(InterfaceEvent)) {
	is.mu.Lock()
	defer is.mu.Unlock()
	is.notify = f
}

// indexesLocked returns the indexes of all interfaces in order.
func (is *Interfaces) indexesLocked() []uint32 { return slices.Sorted(maps.Keys(is.byIndex)) }

// findLocked returns the interface of the given index.
func (is *Interfaces) findLocked(index uint32) (*iface, error) {
	i, ok := is.byIndex[index]
	if !ok {
		return nil, InvalidSwIfIndex
	}
	return i, nil
}

// freeIndexLocked allocates the index of a new interface, the next free one after the last allocated index, so that
// indexes are not reused soon.
func (is *Interfaces) freeIndexLocked() (uint32, error) {
	for range forward.MaxInterfaces {
		is.lastIndex = (is.lastIndex + 1) % forward.MaxInterfaces
		if _, taken := is.byIndex[is.lastIndex]; !taken {
			return is.lastIndex, nil
		}
	}
	return 0, LimitExceeded
}

// with calls f with the interface of the given index, as one change.
func (is *Interfaces) with(index uint32, f func(i *iface) error) error {
	defer is.change()()
	i, err := is.findLocked(index)
	if err != nil {
		return err
	}
	return f(i)
}

// listInterfaces returns the details of the interface of the given index, or for NoIndex of all by index. It skips
// interfaces for which details returns false.
func listInterfaces[D any](is *Interfaces, index uint32, details func(i *iface) (d D, ok bool)) []D {
	is.mu.Lock()
	defer is.mu.Unlock()
	indexes := []uint32{index}
	if index == NoIndex {
		indexes = is.indexesLocked()
	}
	var list []D
	for _, n := range indexes {
		if i := is.byIndex[n]; i != nil {
			if d, ok := details(i); ok {
				list = append(list, d)
			}
		}
	}
	return list
}

// listKind is listInterfaces for the interfaces of kind K.
func listKind[K, D any](is *Interfaces, index uint32, details func(i *iface, k *K) D) []D {
	return listInterfaces(is, index, func(i *iface) (d D, ok bool) {
		if k := kindOf[K](i); k != nil {
			return details(i, k), true
		}
		return d, false
	})
}

// chooseInstance returns the instance number for a new interface of kind K: the wanted one, or for NoIndex the lowest
// free one. It returns false if an interface of this kind has the wanted number.
func chooseInstance[K any](is *Interfaces, want uint32, instance func(*K) uint32) (uint32, bool) {
	taken := map[uint32]bool{}
	for _, i := range is.byIndex {
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
func deleteKind[K any](is *Interfaces, index uint32) error {
	return is.with(index, func(i *iface) error {
		if kindOf[K](i) == nil {
			return InvalidSwIfIndex
		}
		is.deleteLocked(i)
		return nil
	})
}

// addLocked adds a new interface and returns its index. If the engine rejects it, addLocked closes its port and
// returns NoIndex.
func (is *Interfaces) addLocked(i *iface) (uint32, error) {
	is.byIndex[i.Index] = i
	if err := is.engine.SetInterface(i.Index, is.configurationLocked(i)); err != nil {
		delete(is.byIndex, i.Index)
		if i.hasPort() {
			err = errors.Join(err, is.engine.ClosePort(i.Index))
		}
		return NoIndex, err
	}
	is.notify(InterfaceEvent{Index: i.Index, LinkUp: i.LinkUp})
	return i.Index, nil
}

// syncLocked writes the interface to the engine.
func (is *Interfaces) syncLocked(i *iface) {
	if err := is.engine.SetInterface(i.Index, is.configurationLocked(i)); err != nil {
		is.log.Error("packet path rejected an interface", "interface", i.Name, "err", err)
	}
}

// configurationLocked returns the interface for the engine.
func (is *Interfaces) configurationLocked(i *iface) forward.Interface {
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
		ProxyARP:   i.proxyARP,
		ProxyND:    i.proxyND,
	}
	if v := kindOf[VXLAN](i); v != nil {
		f.Tunnel = v.tunnel()
	}
	f.Sub = i.engineSub()
	for _, p := range is.addressesLocked(i) {
		f.Addresses = append(f.Addresses, p.Addr())
		f.IP6Enabled = f.IP6Enabled || p.Addr().Is6()
	}
	for _, one := range is.features {
		one.configureLocked(i, &f)
	}
	return f
}

// ipMTU returns the IP MTU. Interfaces.SetMTU keeps the MTUs of IPv4 and IPv6 equal.
func (i *iface) ipMTU() int { return int(protocolMTU(i.MTU, 1)) }

// InterfaceFilter selects interfaces as sw_interface_dump does: a name takes precedence over an index,
// and the indexes 0 and NoIndex select all.
type InterfaceFilter struct {
	Index  uint32
	ByName bool
	Name   string // substring of the name, case-insensitive
}

// List lists the interfaces that f selects, by index.
func (is *Interfaces) List(f InterfaceFilter) []Interface {
	if f.ByName || f.Index == 0 {
		f.Index = NoIndex
	}
	return listInterfaces(is, f.Index, func(i *iface) (Interface, bool) {
		return is.detailsLocked(i), !f.ByName || strings.Contains(strings.ToLower(i.Name), strings.ToLower(f.Name))
	})
}

// detailsLocked returns the fields of an interface. The link of a sub-interface is its parent's.
func (is *Interfaces) detailsLocked(i *iface) Interface {
	d := i.Interface
	if d.Sub != nil {
		parent := is.byIndex[d.Sub.Parent]
		d.LinkUp = parent.LinkUp
		d.LinkMTU = parent.LinkMTU
	}
	return d
}

// SetMTU sets the MTUs by protocol, in the order of Interface.MTU. The resulting MTUs of IPv4 and IPv6 must be equal:
// the packet path has one for both.
func (is *Interfaces) SetMTU(index uint32, mtu [4]uint32) error {
	return is.with(index, func(i *iface) error {
		if protocolMTU(mtu, 1) != protocolMTU(mtu, 2) {
			return Unsupported
		}
		i.MTU = mtu
		is.syncLocked(i)
		return nil
	})
}

// protocolMTU returns the MTU of one protocol: its own one if it is below the L3 MTU.
// The kernel accepts frames up to 64 KiB.
func protocolMTU(mtu [4]uint32, protocol int) uint32 {
	return min(mtu[0], cmp.Or(mtu[protocol], mtu[0]), 1<<16-1)
}

// SetLinkMTU sets the MTU of the device and the L3 MTU. A loopback has no device.
func (is *Interfaces) SetLinkMTU(index uint32, mtu int) error {
	return is.with(index, func(i *iface) error {
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
		is.syncLocked(i)
		return nil
	})
}

// MAC returns the MAC address of an interface, zero without one.
func (is *Interfaces) MAC(index uint32) (mac frame.MAC, err error) {
	err = is.with(index, func(i *iface) error { mac = i.MAC; return nil })
	return mac, err
}

// SetTag sets the tag of an interface, truncated to 63 bytes. An empty tag is an error.
func (is *Interfaces) SetTag(index uint32, tag string) error {
	return is.with(index, func(i *iface) error {
		if tag = cutTag(tag); tag == "" {
			return InvalidValue
		}
		i.Tag = tag
		return nil
	})
}

// ClearTag removes the tag of an interface.
func (is *Interfaces) ClearTag(index uint32) error {
	return is.with(index, func(i *iface) error { i.Tag = ""; return nil })
}

// cutTag truncates a tag to the length of a details message.
func cutTag(tag string) string {
	tag, _, _ = strings.Cut(tag, "\x00")
	return tag[:min(len(tag), maxTag)]
}

// SetGSO accepts any setting for a known interface: the packet path always segments packets that a port does not
// accept.
func (is *Interfaces) SetGSO(index uint32) error {
	return is.with(index, func(*iface) error { return nil })
}

// closePortLocked closes the port of an interface, if it has one.
func (is *Interfaces) closePortLocked(i *iface) {
	if !i.hasPort() {
		return
	}
	if err := is.engine.ClosePort(i.Index); err != nil && !errors.Is(err, forward.ErrNoPort) {
		is.log.Error("port not closed", "interface", i.Name, "err", err)
	}
}

// removeLocked removes an interface without dependents.
func (is *Interfaces) removeLocked(i *iface) {
	delete(is.byIndex, i.Index)
	is.engine.DelInterface(i.Index)
	is.notify(InterfaceEvent{Index: i.Index, Deleted: true})
}

// Traffic is an interface with its counters.
type Traffic struct {
	Interface
	forward.Counters
}

// Traffic lists all interfaces with their counters.
func (is *Interfaces) Traffic() []Traffic {
	return listInterfaces(is, NoIndex, func(i *iface) (Traffic, bool) {
		return Traffic{i.Interface, is.engine.Counters(i.Index)}, true
	})
}
