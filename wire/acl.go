package wire

import "slices"

// ACL is a list of rules for IP packets that interfaces share (VPP: an acl). The first rule that matches a packet decides, and a packet
// that no rule matches is dropped. Kind vpp.acl.
type ACL struct {
	Label string    `json:"label"` // its name; shown by the dataplane, at most 48 bytes
	Rules []ACLRule `json:"rules"` // at least one
}

// ACLRule permits or denies packets of any source and destination.
//
// A rule with protocols matches a fragment that is not the first by its protocol alone, and matches a packet without the first 8 bytes
// behind the IP headers not at all: such as the first fragment of an IPv6 packet whose chain of headers goes on in the next.
type ACLRule struct {
	Permit       bool   `json:"permit,omitempty"`
	Family       Family `json:"family"`
	Protocols    Range  `json:"protocols,omitzero"` // 0 to 255; zero: any, and what follows is zero
	Sources      Range  `json:"sources,omitzero"`   // source ports, or types of ICMP
	Destinations Range  `json:"destinations,omitzero"`
}

// Range is a range of numbers. Both ends are part of it.
type Range struct {
	First uint16 `json:"first"`
	Last  uint16 `json:"last"`
}

// Single makes the range of one number.
func Single(n uint16) Range { return Range{First: n, Last: n} }

// Equal reports whether both have the same rules in the same order.
func (a ACL) Equal(o ACL) bool { return a.Label == o.Label && slices.Equal(a.Rules, o.Rules) }

// ACLKey is the key of the ACL of that name.
func ACLKey(name string) string { return Key(KindACL, name) }

// InterfaceACL has an ACL decide about the IP packets that an interface receives. Kind vpp.interface-acl; its name is the interface's.
type InterfaceACL struct {
	Interface string `json:"interface"` // name of a vpp.interface
	ACL       string `json:"acl"`       // name of a vpp.acl
}

// InterfaceACLKey is the key of the ACL of an interface.
func InterfaceACLKey(iface string) string { return Key(KindInterfaceACL, iface) }
