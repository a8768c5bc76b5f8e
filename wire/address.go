package wire

import "net/netip"

// Address is an address of an interface of the dataplane. Kind vpp.address. A link-local IPv6 address (/128) replaces
// the one that the interface made from its MAC.
type Address struct {
	Interface string       `json:"interface"` // name of a vpp.interface that has a vpp.interface-vrf for the family
	Prefix    netip.Prefix `json:"prefix"`
}

// AddressName names an address of an interface.
func AddressName(iface string, p netip.Prefix) string { return iface + "/" + p.String() }

// AddressKey is the key of AddressName(iface, p).
func AddressKey(iface string, p netip.Prefix) string {
	return Key(KindAddress, AddressName(iface, p))
}

// Unnumbered lets an interface use the addresses of another, its donor. Kind vpp.unnumbered; its name is the interface's.
// Both families follow the donor; the interface is in its VRFs (IP4, IP6 say of which families) before.
type Unnumbered struct {
	Interface string `json:"interface"` // name of a vpp.interface
	Donor     string `json:"donor"`     // name of a vpp.interface that has an address
	IP4       bool   `json:"ip4,omitempty"`
	IP6       bool   `json:"ip6,omitempty"`
}

// UnnumberedKey is the key of the unnumbered state of an interface.
func UnnumberedKey(iface string) string { return Key(KindUnnumbered, iface) }
