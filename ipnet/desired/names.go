package desired

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// IsLinkName reports whether Linux accepts the name for a link.
func IsLinkName(name string) bool {
	return len(name) <= 15 && !strings.ContainsAny(name, "/: \t\n") && name != "." && name != ".."
}

// externalPrefix begins the names of external interfaces in the dataplane, and of no others.
const externalPrefix = "weft-ext-"

// ExternalOf returns the name of an external interface in the dataplane.
func ExternalOf(name string) string {
	if object := externalPrefix + name; len(object) <= maxObject {
		return object
	}
	return shortened(externalPrefix, name, maxObject)
}

// IsExternal reports whether an interface of the dataplane is an external interface.
func IsExternal(object string) bool { return strings.HasPrefix(object, externalPrefix) }

// CardOf returns the name, in the dataplane, of a network card with trunks. No name of an external interface begins
// with a colon.
func CardOf(card string) string { return externalPrefix + ":" + card }

// VLANOf returns the name of the part of an interface that a VLAN is.
func VLANOf(object string, vlan int) string { return partOf(object, strconv.Itoa(vlan)) }

// PairOf returns the name of the part of an interface with two tags.
func PairOf(object string, outer, vlan int) string {
	return partOf(object, fmt.Sprintf("%d.%d", outer, vlan))
}

// RestOf returns the name of the part of an interface that is no VLAN's.
func RestOf(object string) string { return partOf(object, "rest") }

// partOf names a part of an interface. No other name ends so.
func partOf(object, part string) string {
	if name := object + ":" + part; len(name) <= maxObject {
		return name
	}
	return shortened("weft-", object+":"+part, maxObject)
}

// ExternalAliasPrefix begins the alias of each link that is made for an external interface.
const ExternalAliasPrefix = "weft:external:"

// ExternalAlias returns the alias of a link that is made for an external interface.
func ExternalAlias(name string) string {
	if alias := ExternalAliasPrefix + name; len(alias) <= maxAlias {
		return alias
	}
	return shortened(ExternalAliasPrefix, name, maxAlias)
}

// Names of objects that each node has once. All names of Weft begin with weft, so that leftovers are recognised.
const (
	PodsLabel     = "weft:pods"
	GatewayObject = "weft-gateway"
	HostObject    = "weft-host"
	HostAlias     = wire.AliasPrefix + "host"
	TunnelObject  = "weft-vtep"
	UplinkObject  = "weft-uplink"
	PuntingObject = "weft-punt"
)

// RuntimesName is the name that runtimes choose for an interface. Plugins that delegate choose other names; so a name
// identifies the interface of a delegate if no record exists.
const RuntimesName = "eth0"

// Lengths of names, bytes.
const (
	maxAlias  = 255 // of the alias of a link in the kernel
	maxObject = 48  // of the tag of an interface in VPP
	maxLabel  = 58  // of the name of a table in VPP
)

// The gateways of every pod. They are link-local and the same on each interface, so they need no address of a pool and
// the routes of a pod never change.
var (
	Gateway4 = netip.AddrFrom4([4]byte{169, 254, 1, 1})
	Gateway6 = netip.AddrFrom16([16]byte{0xfe, 0x80, 15: 1})
)

// ErrorSource6 is the source of the ICMPv6 errors that the dataplane sends to pods, an address of the gateway's
// loopback. VPP does not use a link-local address as source. Like the gateways it is the same on each node; it is from
// a unique local prefix.
var ErrorSource6 = netip.AddrFrom16([16]byte{0: 0xfd, 1: 'w', 2: 'e', 3: 'f', 4: 't', 5: 2, 15: 1})

// GatewayOf is the gateway of every pod for a family.
func GatewayOf(f netaddr.Family) netip.Addr {
	if f == netaddr.IP4 {
		return Gateway4
	}
	return Gateway6
}

// DefaultOf is the destination of the default route of a family.
func DefaultOf(f netaddr.Family) netip.Prefix {
	if f == netaddr.IP4 {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

// ObjectName returns the name of an attachment's interface in the dataplane, at most 37 bytes.
func ObjectName(k pod.Key, ifName string) string {
	sum := sha256.Sum256([]byte(k.String()))
	return "weft-" + hex.EncodeToString(sum[:8]) + "-" + ifName
}

// HostName returns the name of the node's end of a veth, 15 bytes.
func HostName(object string) string {
	sum := sha256.Sum256([]byte(object))
	return hostPrefix + hex.EncodeToString(sum[:])[:hostDigits]
}

// The name of the node's end of a veth is a prefix and hexadecimal digits, 15 bytes in all.
const (
	hostPrefix = "weft"
	hostDigits = 11
)

// AliasOf returns the alias of a link: its attachment, and its name if it is not the main interface. A hash replaces an
// alias that is too long for the kernel; it identifies a link of Weft but not its attachment.
func AliasOf(k pod.Key, ifName string) string {
	alias := wire.AliasPrefix + HolderOf(k, ifName)
	if len(alias) > maxAlias {
		sum := sha256.Sum256([]byte(HolderOf(k, ifName)))
		return wire.AliasPrefix + "sha256:" + hex.EncodeToString(sum[:])
	}
	return alias
}

// LabelOf returns the label of the VRFs and the bridge domain of a custom network.
func LabelOf(network string) string {
	if label := "weft:" + network; label != PodsLabel && len(label) <= maxLabel {
		return label
	}
	return shortened("weft:", network, maxLabel)
}

// VLANLabelOf returns the label of the bridge domain of a network's VLAN. No name of a network has a dot.
func VLANLabelOf(network string, vlan int) string {
	if label := fmt.Sprintf("weft:%s.%d", network, vlan); len(label) <= maxLabel {
		return label
	}
	return shortened("weft:", fmt.Sprintf("%s.%d", network, vlan), maxLabel)
}

// IsShared reports whether all pods of the node or of one of its networks need the object of a key: the host link, the
// gateway, the uplink in the dataplane, and the VRF tables, bridge domains and gateways of networks. Tunnels to other
// nodes are not shared objects.
func IsShared(key string) bool {
	kind, name, _ := strings.Cut(key, "/")
	if kind == wire.KindUplink {
		return true
	}
	if kind == wire.KindVRF || kind == wire.KindBridgeDomain {
		return !strings.HasPrefix(name, MeshLabelOf(""))
	}
	for _, on := range []string{wire.VethKey(""), wire.TapPeerKey("")} {
		name = strings.TrimPrefix(name, on)
	}
	object, _, _ := strings.Cut(name, "/")
	return object == HostObject || object == GatewayObject || object == UplinkObject || object == PuntingObject ||
		strings.HasPrefix(object, LoopbackOf(""))
}

// IsNodes reports whether an interface of the dataplane is a link to the node's kernel, or the node's network card.
func IsNodes(object string) bool {
	return object == HostObject || object == TunnelObject || object == UplinkObject || object == PuntingObject
}

// LoopbackOf returns the name of the loopback of a custom network, its gateway or BVI.
func LoopbackOf(network string) string {
	if name := "weft-gw-" + network; len(name) <= maxObject {
		return name
	}
	return shortened("weft-gw-", network, maxObject)
}

// MeshLabelOf returns the label of the bridge domain with the tunnels of a routed network.
func MeshLabelOf(network string) string {
	if label := "weft:vxlan:" + network; len(label) <= maxLabel {
		return label
	}
	return shortened("weft:vxlan:", network, maxLabel)
}

// BVIOf returns the name of the loopback that connects a routed network to the bridge domain of its tunnels.
func BVIOf(network string) string {
	if name := "weft-bvi-" + network; len(name) <= maxObject {
		return name
	}
	return shortened("weft-bvi-", network, maxObject)
}

// tunnelPrefix begins the names of tunnels, and of no other interfaces.
const tunnelPrefix = "weft-vx-"

// NodeOfTunnel returns the ID of the node that a tunnel leads to; ok is false if the interface is not a tunnel.
func NodeOfTunnel(object string) (node uint32, ok bool) {
	rest, ok := strings.CutPrefix(object, tunnelPrefix)
	at := strings.LastIndexByte(rest, '-')
	if !ok || at < 0 {
		return 0, false
	}
	id, err := strconv.ParseUint(rest[at+1:], 10, 32)
	return uint32(id), err == nil
}

// TunnelOf returns the name of the tunnel of a network to a node.
func TunnelOf(network string, node uint32) string {
	const prefix = tunnelPrefix
	end := "-" + strconv.FormatUint(uint64(node), 10)
	if name := prefix + network + end; len(name) <= maxObject {
		return name
	}
	return shortened(prefix, network, maxObject-len(end)) + end
}

// MaxNode is the highest ID of a node that has addresses in the mesh.
const MaxNode = 1<<16 - 1

// MeshMAC is the MAC of a node's loopbacks in the mesh: locally administered, unicast and unique.
func MeshMAC(node uint32) netaddr.MAC {
	return netaddr.MAC{0x12, 0x2b, byte(node >> 24), byte(node >> 16), byte(node >> 8), byte(node)}
}

// MeshAddress is the address of a node on the bridge domains of tunnels. It is link-local, so it needs no address of a
// pool; the IPv4 address only identifies a neighbour. It never equals the gateway of pods.
func MeshAddress(node uint32, f netaddr.Family) netip.Addr {
	high := byte(node >> 8)
	low := byte(node)
	if f == netaddr.IP6 {
		return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 13: 0x2b, 14: high, 15: low})
	}
	a := netip.AddrFrom4([4]byte{169, 254, high, low})
	if a == Gateway4 {
		return netip.AddrFrom4([4]byte{169, 254, 0, 0}) // the address of node 0, which does not exist
	}
	return a
}

// shortened replaces the end of a name by a hash. No name of a network contains a dot, so a shortened name equals no
// other name.
func shortened(prefix, name string, most int) string {
	sum := sha256.Sum256([]byte(name))
	end := "." + hex.EncodeToString(sum[:8])
	return prefix + name[:min(len(name), most-len(prefix)-len(end))] + end
}

// PoolOfNetwork returns the name of the pool of a custom network. Names of the node's pools contain no colon.
func PoolOfNetwork(network string, f netaddr.Family) string { return network + ":" + string(f) }

// NetworkOfPool returns the custom network of a pool; "" for a pool of the node.
func NetworkOfPool(pool string) string {
	network, _, found := strings.Cut(pool, ":")
	if !found {
		return ""
	}
	return network
}

// An end of a link. The value is the first octet of the end's MAC, locally administered and unicast; it differs from
// the octets of the other ends.
type end byte

const (
	// LinuxEnd is the kernel's end of a link to the dataplane.
	LinuxEnd end = 0x02
	// DataplaneEnd is the dataplane's end of a link.
	DataplaneEnd end = 0x06
	// HostEnd is the host's end of a veth; with the dataplane's MAC the kernel would receive the packets of the pod
	// itself
	HostEnd end = 0x0a
)

// MACOf derives the MAC of one end of an interface from its name in the dataplane. So a pod's gateway has the same MAC
// after a restart.
func MACOf(object string, e end) netaddr.MAC {
	sum := sha256.Sum256([]byte(object))
	mac := netaddr.MAC(sum[:6])
	mac[0] = byte(e)
	return mac
}

// MACOfAddress derives the MAC of a pod's end from an address on a network.
func MACOfAddress(network string, a netip.Addr) netaddr.MAC {
	return MACOf(network+"/"+a.String(), LinuxEnd)
}

// LinkLocalOf is the address that the kernel derives from the MAC of a link (RFC 4291, appendix A).
func LinkLocalOf(m netaddr.MAC) netip.Addr {
	return netip.AddrFrom16([16]byte{
		0:  0xfe,
		1:  0x80,
		8:  m[0] ^ 2,
		9:  m[1],
		10: m[2],
		11: 0xff,
		12: 0xfe,
		13: m[3],
		14: m[4],
		15: m[5],
	})
}

// HolderOf returns the holder of the addresses of one interface of an attachment.
func HolderOf(k pod.Key, ifName string) string {
	if ifName == k.IfName {
		return k.String()
	}
	return k.String() + "/" + ifName
}

// IsCustom reports whether a network is a custom network; all other networks always exist.
func IsCustom(network string) bool {
	return network != "" && network != pod.DefaultNetwork && network != pod.StubNetwork
}

// NetworkOf returns the name of a network in interfaces, "" for the network default.
func NetworkOf(network string) string {
	if network == pod.DefaultNetwork {
		return ""
	}
	return network
}

// UplinkLink is the name of the kernel's end of the link to a dataplane that owns the network card.
const UplinkLink = "weft-uplink0"

// UplinkKey is the key of the dataplane's interface on the card.
func UplinkKey() string { return wire.InterfaceKey(UplinkObject) }

// Forwarding holds the sysctl of a namespace that enables the forwarding of a family.
var Forwarding = map[netaddr.Family]string{
	netaddr.IP4: "net/ipv4/ip_forward",
	netaddr.IP6: "net/ipv6/conf/all/forwarding",
}

// ForwardingFrom returns the sysctl that enables the forwarding of a family's packets that come from a link.
func ForwardingFrom(link string, f netaddr.Family) string {
	if f == netaddr.IP4 {
		return "net/ipv4/conf/" + link + "/forwarding"
	}
	return "net/ipv6/conf/" + link + "/forwarding"
}

// VethObject returns the name of the dataplane's interface that the veth of a pod, of the node or of the tunnels
// belongs to, from the name, the alias and the MAC of the dataplane's end; ok is false for any other link, and for an
// alias that is a hash. An agent that was killed between the creation of a veth and the next call has left it without
// an alias: it has the name of its end, and the name of the pod's end is unknown.
func VethObject(host, alias string, mac netaddr.MAC) (object, ifName string, ok bool) {
	switch alias {
	case "":
		return host, "", isUnfinished(host, mac)
	case HostAlias:
		return HostObject, DefaultHostLink, host == HostName(HostObject)
	case TunnelAlias:
		return TunnelObject, DefaultTunnelLink, host == HostName(TunnelObject)
	}
	key, ifName, err := ParseAlias(alias)
	if err != nil {
		return "", "", false
	}
	object = ObjectName(key, ifName)
	return object, ifName, host == HostName(object)
}

// isUnfinished reports whether a link without an alias is the node's end of a veth: its name and its MAC come from the
// same hash, of an object that they do not tell.
func isUnfinished(host string, mac netaddr.MAC) bool {
	digits, hasPrefix := strings.CutPrefix(host, hostPrefix)
	return hasPrefix && len(digits) == hostDigits && mac[0] == byte(HostEnd) &&
		digits[2:10] == hex.EncodeToString(mac[1:5])
}

// ParseAlias is the inverse of AliasOf.
func ParseAlias(alias string) (key pod.Key, ifName string, err error) {
	text, ours := strings.CutPrefix(alias, wire.AliasPrefix)
	parts := strings.Split(text, "/")
	if !ours || len(parts) < 3 || len(parts) > 4 || slices.Contains(parts, "") {
		return pod.Key{}, "", fmt.Errorf("alias %q does not name an attachment", alias)
	}
	return pod.Key{Network: parts[0], ContainerID: parts[1], IfName: parts[2]}, parts[len(parts)-1], nil
}

// The dataplane's end of all tunnels where the kernel has the network card, on a link of its own to the node's kernel:
//
//	pods' VRF - bridge domain - tunnel (inner to peer) - VRF of the tunnels - tunnelObject (inner)
//	                                                                               ||
//	                    uplink (node) - node's kernel, which translates - TunnelLink
//
// The dataplane sends from an address that it has (VPP drops everything else), and the kernel, which keeps the uplink,
// puts the node's address in its place (wire.TunnelNAT). Peers see tunnels between the addresses of nodes. The VRF has
// only the routes to the peers: pods are in other VRFs, and a packet to any other machine is dropped.
const (
	DefaultHostLink   = "weft0"
	DefaultTunnelLink = "weft-vtep0"
	TunnelAlias       = wire.AliasPrefix + "vtep"
	TunnelLabel       = "weft:vxlan:.ends" // begins as meshLabelOf does; no name of a network begins with a dot
)

// TunnelVRF routes the packets of all tunnels.
var TunnelVRF = VRF{Label: TunnelLabel}
