package model

import (
	"net/netip"
	"strconv"

	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/frame"
)

const (
	// vxlanPort is IANA's.
	vxlanPort = 4789
	// decapToBridge is VPP's number of the node that takes what is in an envelope: l2-input.
	decapToBridge = 1
)

// VXLAN says what tunnel to make, in vxlan_add_del_tunnel_v3's words.
type VXLAN struct {
	Instance            uint32 // NoIndex: the lowest free one
	Source, Destination netip.Addr
	SourcePort          uint16 // that envelopes come to; 0: 4789
	DestinationPort     uint16 // 0: 4789
	VRF                 uint32
	VNI                 uint32
	DecapNext           uint32 // NoIndex: to the bridge domain; another than that is refused
	MulticastInterface  uint32 // looked at only where Destination is a group
	L3                  bool   // refused
}

// VXLANDetails is what vxlan_tunnel_v2_details tells.
type VXLANDetails struct {
	VXLAN
	Index uint32
}

// vxlan is a tunnel at work.
type vxlan struct{ VXLAN }

// AddVXLAN makes vxlan_tunnel<instance>, which is up, as in VPP, and returns its index. Its envelopes go by the routes of the
// VRF, whatever addresses the dataplane has there: without a route to the destination they are dropped. What comes back is
// the tunnel's once its source is an address of an interface in the VRF.
//
// The errors are those of vxlan_add_del_tunnel_clean_input and vnet_vxlan_add_del_tunnel (VPP 25.10, src/plugins/vxlan), in
// their order: an unknown VRF, two families, the same address twice, a group on no interface, a tunnel that exists,
// another next node than there are, an instance that is taken. VPP would make a tunnel of whatever VNI and address: those
// that cannot work are INVALID_VALUE here. Groups, tunnels of IP packets and other next nodes are UNSUPPORTED.
func (m *Model) AddVXLAN(v VXLAN) (uint32, error) {
	defer m.change()()
	v.complete()
	if err := m.checkVXLANLocked(&v); err != nil {
		return NoIndex, err
	}
	index, err := m.freeIndexLocked()
	if err != nil {
		return NoIndex, err
	}
	i := newEthernet(Interface{Index: index, Name: "vxlan_tunnel" + strconv.FormatUint(uint64(v.Instance), 10), DevType: "VXLAN",
		MAC: randomMAC(), AdminUp: true, LinkUp: true})
	i.vxlan = &vxlan{v}
	if err := m.addLocked(i); err != nil {
		return NoIndex, err
	}
	m.tables[v.table()].users++
	m.notify(InterfaceEvent{Index: index, AdminUp: true})
	return index, nil
}

// DeleteVXLAN removes the tunnel between two addresses, of a VNI, a VRF and a source port.
func (m *Model) DeleteVXLAN(v VXLAN) (uint32, error) {
	defer m.change()()
	v.complete()
	if err := m.checkEndsLocked(v); err != nil {
		return NoIndex, err
	}
	i := m.vxlanLocked(v)
	if i == nil {
		return NoIndex, NoSuchEntry
	}
	m.removeLocked(i)
	m.releaseTableLocked(v.table())
	return i.Index, nil
}

// VXLANs lists the tunnel of that index, or all for NoIndex.
func (m *Model) VXLANs(index uint32) []VXLANDetails {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []VXLANDetails
	for _, n := range m.indexesLocked() {
		if i := m.interfaces[n]; i.vxlan != nil && (index == NoIndex || index == n) {
			list = append(list, VXLANDetails{VXLAN: i.vxlan.VXLAN, Index: n})
		}
	}
	return list
}

func (v *VXLAN) complete() {
	if v.SourcePort == 0 {
		v.SourcePort = vxlanPort
	}
	if v.DestinationPort == 0 {
		v.DestinationPort = vxlanPort
	}
	if v.DecapNext == NoIndex {
		v.DecapNext = decapToBridge
	}
}

// table is where envelopes are routed.
func (v *VXLAN) table() forward.TableKey {
	return forward.TableKey{Family: forward.FamilyOf(v.Source), ID: v.VRF}
}

// checkEndsLocked is what VPP checks of a request to delete, too.
func (m *Model) checkEndsLocked(v VXLAN) error {
	switch {
	case m.tables[v.table()] == nil:
		return NoSuchFIB
	case v.Source.Is4() != v.Destination.Is4():
		return InvalidValue
	case v.Source == v.Destination:
		return SameSrcDst
	case v.Destination.IsMulticast() && m.interfaces[v.MulticastInterface] == nil:
		return InvalidSwIfIndex
	}
	return nil
}

// checkVXLANLocked refuses what cannot be had, and chooses the instance.
func (m *Model) checkVXLANLocked(v *VXLAN) error {
	if err := m.checkEndsLocked(*v); err != nil {
		return err
	}
	switch {
	case v.Destination.IsMulticast() || v.L3 || v.DecapNext == 0:
		return Unsupported
	case v.VNI == 0 || v.VNI > frame.MaxVNI || !isHost(v.Source) || !isHost(v.Destination):
		return InvalidValue
	case m.vxlanLocked(*v) != nil:
		return TunnelExist
	case v.DecapNext != decapToBridge:
		return InvalidDecapNext
	}
	return m.chooseVXLANInstanceLocked(v)
}

// isHost says that an envelope can come from a and go to it.
func isHost(a netip.Addr) bool { return !a.IsUnspecified() && !a.IsMulticast() && !a.Is4In6() }

func (m *Model) chooseVXLANInstanceLocked(v *VXLAN) error {
	taken := map[uint32]bool{}
	for _, i := range m.interfaces {
		if i.vxlan != nil {
			taken[i.vxlan.Instance] = true
		}
	}
	if v.Instance != NoIndex && taken[v.Instance] {
		return InstanceInUse
	}
	for n := uint32(0); v.Instance == NoIndex; n++ {
		if !taken[n] {
			v.Instance = n
		}
	}
	return nil
}

// vxlanLocked finds the tunnel that takes the same envelopes.
func (m *Model) vxlanLocked(v VXLAN) *iface {
	for _, i := range m.interfaces {
		if o := i.vxlan; o != nil && o.VNI == v.VNI && o.Destination == v.Destination && o.Source == v.Source &&
			o.SourcePort == v.SourcePort && o.VRF == v.VRF {
			return i
		}
	}
	return nil
}

// tunnel is the tunnel as the engine needs it.
func (v *vxlan) tunnel() *forward.Tunnel {
	return &forward.Tunnel{Source: netip.AddrPortFrom(v.Source, v.SourcePort), VNI: v.VNI, Table: v.VRF,
		Destination: netip.AddrPortFrom(v.Destination, v.DestinationPort)}
}
