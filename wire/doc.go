// Package wire is the vocabulary of the machine: the desired values that wire a pod, one file a kind.
//
// A value is named by a key "kind/name". Rooms that must not import each other (ipnet makes values, dataplane
// realises them) meet in these structs and in the functions that make their keys. Values are inert and compare with
// ==, but for those with slices, which have Equal.
package wire

import "strings"

// A kind is the first part of a key. The first word says which side of the machine realises it.
const (
	KindVRF            = "vpp.vrf"
	KindInterface      = "vpp.interface"
	KindInterfaceVRF   = "vpp.interface-vrf"
	KindAddress        = "vpp.address"
	KindUnnumbered     = "vpp.unnumbered"
	KindRoute          = "vpp.route"
	KindNeighbour      = "vpp.neighbour"
	KindNamespace      = "linux.netns"
	KindTapPeer        = "linux.tap-peer"
	KindLinuxAddress   = "linux.address"
	KindLinuxRoute     = "linux.route"
	KindLinuxNeighbour = "linux.neighbour"
	KindHardening      = "linux.hardening"
	KindSysctl         = "linux.sysctl"
	KindBridgeDomain   = "vpp.bridge-domain"
	KindBridgeMember   = "vpp.bd-member"
	KindL2FIB          = "vpp.l2fib"
	KindMACIP          = "vpp.macip-acl"
	KindACL            = "vpp.acl"
	KindInterfaceACL   = "vpp.interface-acl"
	KindProxyARP       = "vpp.proxy-arp"
	KindVeth           = "linux.veth"
	KindLink           = "linux.link"
	KindVLAN           = "linux.vlan"
	KindMemifSocket    = "vpp.memif-socket"
	KindFile           = "linux.file"
	KindMasquerade     = "linux.masquerade"
	KindTunnelNAT      = "linux.tunnel-nat"
	KindPuntRedirect   = "vpp.punt-redirect"
	KindUplink         = "linux.uplink"
)

// Kinds lists every kind, in the order in which an operator reads them: the dataplane's, then the kernel's.
func Kinds() []string {
	return []string{
		KindVRF, KindMemifSocket, KindInterface, KindInterfaceVRF, KindAddress, KindUnnumbered, KindRoute, KindNeighbour,
		KindBridgeDomain, KindBridgeMember, KindL2FIB, KindMACIP, KindACL, KindInterfaceACL, KindProxyARP, KindPuntRedirect,
		KindNamespace, KindTapPeer, KindVeth, KindLink, KindVLAN, KindLinuxAddress, KindLinuxRoute, KindLinuxNeighbour, KindHardening, KindSysctl,
		KindMasquerade, KindTunnelNAT, KindUplink, KindFile,
	}
}

// IsDataplane reports whether a key is that of an object in the dataplane, and not in the kernel.
func IsDataplane(key string) bool { return strings.HasPrefix(key, "vpp.") }

// Key joins a kind and a name; the kind ends at the first slash, a name may hold more of them.
func Key(kind, name string) string { return kind + "/" + name }
