package wire

import (
	"net/netip"
	"slices"
)

// MACIP says who may send by an interface: a packet whose source MAC and address match no rule is dropped (VPP: a macip
// ACL). ARP and neighbour discovery are judged by their sender. Kind vpp.macip-acl; its name is the interface's.
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

// MACIPKey is the key of the rules of an interface.
func MACIPKey(iface string) string { return Key(KindMACIP, iface) }

// ProxyARP lets the dataplane answer ARP on an interface for a range of addresses, and for the ranges that others have in
// the same VRF: ranges are the VRF's, an interface answers or it does not. Kind vpp.proxy-arp.
type ProxyARP struct {
	Interface string     `json:"interface"` // name of a vpp.interface in the VRF
	VRF       string     `json:"vrf"`       // name of a vpp.vrf of family ip4
	First     netip.Addr `json:"first"`
	Last      netip.Addr `json:"last"`
}

// ProxyARPName names the range that begins at an address, on an interface.
func ProxyARPName(iface string, first netip.Addr) string { return iface + "/" + first.String() }

// ProxyARPKey is the key of ProxyARPName(iface, first).
func ProxyARPKey(iface string, first netip.Addr) string {
	return Key(KindProxyARP, ProxyARPName(iface, first))
}
