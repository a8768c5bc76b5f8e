package model

import (
	"net/netip"
	"strconv"

	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/frame"
)

const (
	// vxlanPort is the IANA port of VXLAN.
	vxlanPort = 4789
	// decapToBridge is VPP's index of the node l2-input, which receives the inner frames.
	decapToBridge = 1
)

// VXLAN holds the fields of vxlan_add_del_tunnel_v3.
type VXLAN struct {
	Instance            uint32 // NoIndex: the lowest free one
	Source, Destination netip.Addr
	SourcePort          uint16 // receiving port; 0: 4789
	DestinationPort     uint16 // 0: 4789
	VRF                 uint32
	VNI                 uint32
	DecapNext           uint32 // NoIndex: the bridge domain; others are unsupported
	MulticastInterface  uint32 // only for a multicast Destination
	L3                  bool   // unsupported
}

// VXLANDetails holds the fields of vxlan_tunnel_v2_details.
type VXLANDetails struct {
	VXLAN
	Index uint32
}

// VXLANs are the VXLAN tunnels.
type VXLANs struct {
	*barrier
	interfaces *Interfaces
	fib        *fib
}

// Add creates vxlan_tunnel<instance>, which is up, as in VPP, and returns its index. The routes of the VRF forward
// the outer packets, whatever addresses the dataplane has there; without a route they are dropped. The tunnel receives
// packets if its source is an address of an interface in the VRF.
//
// The errors and their order are those of vxlan_add_del_tunnel_clean_input and vnet_vxlan_add_del_tunnel (VPP 25.10,
// src/plugins/vxlan): an unknown VRF, two families, equal addresses, a group without interface, an existing tunnel, an
// unknown next node, an instance in use. Unlike VPP it rejects a VNI or an address that cannot work (INVALID_VALUE),
// and groups, tunnels of IP packets and other next nodes (UNSUPPORTED).
func (vs *VXLANs) Add(v VXLAN) (uint32, error) {
	defer vs.change()()
	v.complete()
	if err := vs.checkNewLocked(&v); err != nil {
		return NoIndex, err
	}
	index, err := vs.interfaces.freeIndexLocked()
	if err != nil {
		return NoIndex, err
	}
	i := newEthernet(Interface{
		Index:   index,
		Name:    "vxlan_tunnel" + strconv.FormatUint(uint64(v.Instance), 10),
		DevType: "VXLAN",
		MAC:     *orRandomMAC(nil), AdminUp: true, LinkUp: true,
	})
	i.kind = &v
	if _, err := vs.interfaces.addLocked(i); err != nil {
		return NoIndex, err
	}
	vs.fib.tables[v.table()].users++
	vs.interfaces.notify(InterfaceEvent{Index: index, AdminUp: true})
	return index, nil
}

// Delete deletes the tunnel with the given addresses, VNI, VRF and source port, and returns its index.
func (vs *VXLANs) Delete(v VXLAN) (uint32, error) {
	defer vs.change()()
	v.complete()
	if err := vs.checkEndsLocked(v); err != nil {
		return NoIndex, err
	}
	i := vs.findLocked(v)
	if i == nil {
		return NoIndex, NoSuchEntry
	}
	vs.interfaces.deleteLocked(i)
	return i.Index, nil
}

// List lists the tunnel of the given index, or all for NoIndex.
func (vs *VXLANs) List(index uint32) []VXLANDetails {
	return listKind(vs.interfaces, index, func(i *iface, v *VXLAN) VXLANDetails {
		return VXLANDetails{VXLAN: *v, Index: i.Index}
	})
}

// complete sets defaults.
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

// table returns the VRF of the outer packets.
func (v *VXLAN) table() forward.TableKey {
	return forward.TableKey{Family: forward.FamilyOf(v.Source), ID: v.VRF}
}

// checkEndsLocked validates the fields that VPP validates for add and delete.
func (vs *VXLANs) checkEndsLocked(v VXLAN) error {
	switch {
	case vs.fib.tables[v.table()] == nil:
		return NoSuchFIB
	case v.Source.Is4() != v.Destination.Is4():
		return InvalidValue
	case v.Source == v.Destination:
		return SameSrcDst
	case v.Destination.IsMulticast() && vs.interfaces.byIndex[v.MulticastInterface] == nil:
		return InvalidSwIfIndex
	}
	return nil
}

// checkNewLocked validates a new tunnel and allocates the instance.
func (vs *VXLANs) checkNewLocked(v *VXLAN) error {
	if err := vs.checkEndsLocked(*v); err != nil {
		return err
	}
	switch {
	case v.Destination.IsMulticast() || v.L3 || v.DecapNext == 0:
		return Unsupported
	case v.VNI == 0 || v.VNI > frame.MaxVNI || !isHost(v.Source) || !isHost(v.Destination):
		return InvalidValue
	case vs.findLocked(*v) != nil:
		return TunnelExist
	case v.DecapNext != decapToBridge:
		return InvalidDecapNext
	}
	instance, free := chooseInstance(vs.interfaces, v.Instance, func(v *VXLAN) uint32 { return v.Instance })
	if !free {
		return InstanceInUse
	}
	v.Instance = instance
	return nil
}

// isHost reports whether a can be the source and destination of packets.
func isHost(a netip.Addr) bool { return !a.IsUnspecified() && !a.IsMulticast() && !a.Is4In6() }

// findLocked returns the tunnel that receives the same packets.
func (vs *VXLANs) findLocked(v VXLAN) *iface {
	for _, i := range vs.interfaces.byIndex {
		if o := kindOf[VXLAN](i); o != nil && o.VNI == v.VNI && o.Destination == v.Destination &&
			o.Source == v.Source &&
			o.SourcePort == v.SourcePort && o.VRF == v.VRF {
			return i
		}
	}
	return nil
}

// releaseLocked ends the use of a VRF by a deleted tunnel.
func (vs *VXLANs) releaseLocked(i *iface) {
	if v := kindOf[VXLAN](i); v != nil {
		vs.fib.release(v.table())
	}
}

// tunnel returns the tunnel for the engine.
func (v *VXLAN) tunnel() *forward.Tunnel {
	return &forward.Tunnel{Source: netip.AddrPortFrom(v.Source, v.SourcePort), VNI: v.VNI, Table: v.VRF,
		Destination: netip.AddrPortFrom(v.Destination, v.DestinationPort)}
}
