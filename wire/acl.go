package wire

import (
	"encoding/json"
	"net/netip"
	"slices"

	"github.com/weftnet/weft/internal/netaddr"
)

// ACL is a list of rules for IP packets that interfaces share (VPP: an acl). The first rule that matches a packet
// decides, and a packet that no rule matches is dropped. Kind vpp.acl.
type ACL struct {
	Label string    `json:"label"` // its name; shown by the dataplane, at most 48 bytes
	Rules []ACLRule `json:"rules"` // at least one
}

// ACLRule permits or denies packets of one of its sources to one of its destinations. Its size is the sum of these
// sets. Rules share sets and never change them. The dataplane has a rule for each combination.
//
// A rule with ports matches later fragments by their addresses and protocol only. It does not match packets without the
// first 8 bytes after the IP headers, for example a first IPv6 fragment with incomplete extension headers.
type ACLRule struct {
	Permit bool `json:"permit,omitempty"`
	// Reflect makes a permitted packet open a session of the interface (VPP: permit+reflect). Until the session ages
	// out, the interface permits its packets in both directions, whatever its lists say then.
	Reflect bool           `json:"reflect,omitempty"`
	Family  netaddr.Family `json:"family"`
	From    []netip.Prefix `json:"from,omitempty"`  // masked, of the family; none: any address
	To      []netip.Prefix `json:"to,omitempty"`    // likewise
	Ports   []ACLPorts     `json:"ports,omitempty"` // none: any protocol

	// Origin names what the rule is from, such as a rule of a NetworkPolicy, for counters and explanations. The
	// dataplane does not have it: rules that differ in it only are the same object there.
	Origin string `json:"origin,omitempty"`
}

// ACLPorts are packets of some protocols, by their ports.
type ACLPorts struct {
	Protocols    Range `json:"protocols"` // 1 to 255
	Sources      Range `json:"sources"`   // source ports, or ICMP types
	Destinations Range `json:"destinations"`
}

// Range is an inclusive range of numbers.
type Range struct {
	First uint16 `json:"first"`
	Last  uint16 `json:"last"`
}

// Single returns the range of one number.
func Single(n uint16) Range { return Range{First: n, Last: n} }

// Equal reports whether both have the same rules in the same order.
func (a ACL) Equal(o ACL) bool {
	return a.Label == o.Label && slices.EqualFunc(a.Rules, o.Rules, ACLRule.Equal)
}

// Equal reports whether both have the same sets, in the same order.
func (r ACLRule) Equal(o ACLRule) bool {
	isSame := r.Permit == o.Permit && r.Reflect == o.Reflect && r.Family == o.Family && r.Origin == o.Origin
	return isSame && slices.Equal(r.Ports, o.Ports) && slices.Equal(r.From, o.From) && slices.Equal(r.To, o.To)
}

// UnmarshalJSON reads a rule. Earlier versions wrote rules of one prefix and one range of ports.
func (r *ACLRule) UnmarshalJSON(raw []byte) error {
	type plain ACLRule
	both := struct {
		*plain
		Source      netip.Prefix `json:"source"`
		Destination netip.Prefix `json:"destination"`
		ACLPorts
	}{plain: (*plain)(r)}
	if err := json.Unmarshal(raw, &both); err != nil {
		return err
	}
	if both.Source.IsValid() {
		r.From = []netip.Prefix{both.Source}
	}
	if both.Destination.IsValid() {
		r.To = []netip.Prefix{both.Destination}
	}
	if both.ACLPorts != (ACLPorts{}) {
		r.Ports = []ACLPorts{both.ACLPorts}
	}
	return nil
}

// ACLKey returns the key of an ACL.
func ACLKey(name string) string { return Key(KindACL, name) }

// InterfaceACL applies ACLs to the IP packets of an interface. In each direction the first rule of all its ACLs that
// matches a packet decides, in the order of the list. Without ACLs a direction permits all packets. Kind
// vpp.interface-acl; its name is the interface's.
type InterfaceACL struct {
	Interface string   `json:"interface"`        // name of a vpp.interface
	Input     []string `json:"input,omitempty"`  // names of vpp.acl, for packets that the dataplane receives
	Output    []string `json:"output,omitempty"` // likewise for packets that the dataplane sends
}

// Equal reports whether both have the same ACLs in the same order.
func (i InterfaceACL) Equal(o InterfaceACL) bool {
	return i.Interface == o.Interface && slices.Equal(i.Input, o.Input) && slices.Equal(i.Output, o.Output)
}

// InterfaceACLKey returns the key of the ACL of an interface.
func InterfaceACLKey(iface string) string { return Key(KindInterfaceACL, iface) }

// MACIP is the anti-spoofing filter of an interface (VPP: a macip ACL): the dataplane drops received packets if source
// MAC and address match no rule. In ARP and neighbour discovery, the rules apply to the sender. Kind vpp.macip-acl; its
// name is the interface's.
type MACIP struct {
	Interface string      `json:"interface"` // name of a vpp.interface
	Rules     []MACIPRule `json:"rules"`     // at least one
}

// MACIPRule permits one source.
type MACIPRule struct {
	MAC    netaddr.MAC  `json:"mac"`
	Source netip.Prefix `json:"source"`
}

// Equal reports whether both permit the same sources, in the same order.
func (m MACIP) Equal(o MACIP) bool {
	return m.Interface == o.Interface && slices.Equal(m.Rules, o.Rules)
}

// MACIPKey returns the key of the filter of an interface.
func MACIPKey(iface string) string { return Key(KindMACIP, iface) }
