// Package wire has the types of desired values that connect pods, and their keys.
//
// The key of a value is "kind/name". Packages that must not import each other share these types: ipnet makes values,
// dataplane applies them. Values do not change and compare with ==; those with slices or maps have Equal.
package wire

import "strings"

// A kind is the first part of a key. Its prefix says whether the dataplane (vpp) or the kernel (linux) has the object.
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
	KindAnnouncement   = "linux.announcement"
	KindBridgeDomain   = "vpp.bridge-domain"
	KindBridgeMember   = "vpp.bd-member"
	KindL2FIB          = "vpp.l2fib"
	KindMACIP          = "vpp.macip-acl"
	KindACL            = "vpp.acl"
	KindInterfaceACL   = "vpp.interface-acl"
	KindPolicer        = "vpp.policer"
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
	KindMemifSplice    = "linux.memif-splice"
)

// Kinds lists every kind in display order: the dataplane's, then the kernel's.
func Kinds() []string {
	return []string{
		KindVRF, KindMemifSocket, KindInterface, KindInterfaceVRF, KindAddress, KindUnnumbered, KindRoute,
		KindNeighbour,
		KindBridgeDomain, KindBridgeMember, KindL2FIB, KindMACIP, KindACL, KindInterfaceACL, KindPolicer,
		KindProxyARP,
		KindPuntRedirect,
		KindNamespace, KindTapPeer, KindVeth, KindLink, KindVLAN, KindLinuxAddress, KindLinuxRoute, KindLinuxNeighbour,
		KindHardening, KindSysctl,
		KindAnnouncement, KindMasquerade, KindTunnelNAT, KindUplink, KindFile, KindMemifSplice,
	}
}

// IsDataplane reports whether a key is of an object in the dataplane, not in the kernel.
func IsDataplane(key string) bool { return strings.HasPrefix(key, "vpp.") }

// Key joins a kind and a name. The kind ends at the first slash; a name may have slashes.
func Key(kind, name string) string { return kind + "/" + name }
