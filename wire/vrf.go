package wire

import "net/netip"

// Family is an address family.
type Family string

// The two address families.
const (
	IP4 Family = "ip4"
	IP6 Family = "ip6"
)

// FamilyOf returns the family of an address. An IPv4-mapped IPv6 address is IPv6, as in the kernel.
func FamilyOf(a netip.Addr) Family {
	if a.Is4() {
		return IP4
	}
	return IP6
}

// VRF is a routing table of one family in the dataplane (VPP: an IP table). Kind vpp.vrf.
type VRF struct {
	ID     uint32 `json:"id"` // table ID, 1 to 2^32-2; 0 is the dataplane's own, which always exists
	Family Family `json:"family"`
	Label  string `json:"label"` // shown by the dataplane, at most 63 bytes
}

// VRFName returns the name of the VRF of one family; label is unique among the tables of the node.
func VRFName(label string, f Family) string { return label + "/" + string(f) }

// VRFKey returns the key of VRFName(label, f).
func VRFKey(label string, f Family) string { return Key(KindVRF, VRFName(label, f)) }

// InterfaceVRF puts an interface into a VRF, before it gets addresses. Kind vpp.interface-vrf.
type InterfaceVRF struct {
	Interface   string `json:"interface"` // name of a vpp.interface
	Family      Family `json:"family"`
	VRF         string `json:"vrf"`              // name of a vpp.vrf of that family
	AntiSpoofed bool   `json:"judged,omitempty"` // depends on the interface's vpp.macip-acl

	Filtered bool `json:"filtered,omitempty"` // depends on the interface's vpp.interface-acl
}

// InterfaceVRFName returns the name of the membership of an interface for one family.
func InterfaceVRFName(iface string, f Family) string { return iface + "/" + string(f) }

// InterfaceVRFKey returns the key of InterfaceVRFName(iface, f).
func InterfaceVRFKey(iface string, f Family) string {
	return Key(KindInterfaceVRF, InterfaceVRFName(iface, f))
}
