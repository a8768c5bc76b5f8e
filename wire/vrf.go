package wire

import "github.com/weftnet/weft/internal/netaddr"

// VRF is a routing table of one family in the dataplane (VPP: an IP table). Kind vpp.vrf.
type VRF struct {
	ID     uint32         `json:"id"` // table ID, 1 to 2^32-2; 0 is the dataplane's own, which always exists
	Family netaddr.Family `json:"family"`
	Label  string         `json:"label"` // shown by the dataplane, at most 63 bytes
}

// VRFName returns the name of the VRF of one family; label is unique among the tables of the node.
func VRFName(label string, f netaddr.Family) string { return label + "/" + string(f) }

// VRFKey returns the key of VRFName(label, f).
func VRFKey(label string, f netaddr.Family) string { return Key(KindVRF, VRFName(label, f)) }

// InterfaceVRF puts an interface into a VRF, before it gets addresses. Kind vpp.interface-vrf.
type InterfaceVRF struct {
	Interface   string         `json:"interface"` // name of a vpp.interface
	Family      netaddr.Family `json:"family"`
	VRF         string         `json:"vrf"`              // name of a vpp.vrf of that family
	AntiSpoofed bool           `json:"judged,omitempty"` // depends on the interface's vpp.macip-acl

	Filtered bool `json:"filtered,omitempty"` // depends on the interface's vpp.interface-acl
}

// InterfaceVRFName returns the name of the membership of an interface for one family.
func InterfaceVRFName(iface string, f netaddr.Family) string { return iface + "/" + string(f) }

// InterfaceVRFKey returns the key of InterfaceVRFName(iface, f).
func InterfaceVRFKey(iface string, f netaddr.Family) string {
	return Key(KindInterfaceVRF, InterfaceVRFName(iface, f))
}
