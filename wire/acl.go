package wire

import (
	"net/netip"
	"slices"
)

// ACL is a list of rules for IP packets that interfaces share (VPP: an acl). The first rule that matches a packet decides, and a packet
// that no rule matches is dropped. Kind vpp.acl.
type ACL struct {
	Label string    `json:"label"` // its name; shown by the dataplane, at most 48 bytes
	Rules []ACLRule `json:"rules"` // at least one
}

// ACLRule permits or denies packets of any source and destination address.
//
// A rule with protocols matches later fragments by their protocol only. It does not match packets without the first 8 bytes after the IP
// headers, for example a first IPv6 fragment with incomplete extension headers.
type ACLRule struct {
	Permit       bool   `json:"permit,omitempty"`
	Family       Family `json:"family"`
	Protocols    Range  `json:"protocols,omitzero"` // 0 to 255; zero: any protocol, and both ranges of ports are zero
	Sources      Range  `json:"sources,omitzero"`   // source ports, or ICMP types
	Destinations Range  `json:"destinations,omitzero"`
}

// Range is an inclusive range of numbers.
type Range struct {
	First uint16 `json:"first"`
	Last  uint16 `json:"last"`
}

// Single returns the range of one number.
func Single(n uint16) Range { return Range{First: n, Last: n} }

// Equal reports whether both have the same rules in the same order.
func (a ACL) Equal(o ACL) bool { return a.Label == o.Label && slices.Equal(a.Rules, o.Rules) }

// ACLKey returns the key of an ACL.
func ACLKey(name string) string { return Key(KindACL, name) }

// InterfaceACL applies an ACL to the IP packets that an interface receives. Kind vpp.interface-acl; its name is the interface's.
type InterfaceACL struct {
	Interface string `json:"interface"` // name of a vpp.interface
	ACL       string `json:"acl"`       // name of a vpp.acl
}

// InterfaceACLKey returns the key of the ACL of an interface.
func InterfaceACLKey(iface string) string { return Key(KindInterfaceACL, iface) }

// MACIP is the anti-spoofing filter of an interface (VPP: a macip ACL): the dataplane drops received packets if source MAC and address
// match no rule. In ARP and neighbour discovery, the rules apply to the sender. Kind vpp.macip-acl; its name is the interface's.
type MACIP struct {
	Interface string      `json:"interface"` // name of a vpp.interface
	Rules     []MACIPRule `json:"rules"`     // at least one
}

// MACIPRule permits one source.
type MACIPRule struct {
	MAC    MAC          `json:"mac"`
	Source netip.Prefix `json:"source"`
}

// Equal reports whether both permit the same sources, in the same order.
func (m MACIP) Equal(o MACIP) bool {
	return m.Interface == o.Interface && slices.Equal(m.Rules, o.Rules)
}

// MACIPKey returns the key of the filter of an interface.
func MACIPKey(iface string) string { return Key(KindMACIP, iface) }
