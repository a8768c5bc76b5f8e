package desired

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// IsLinkName reports whether Linux takes the name for a link.
func IsLinkName(name string) bool {
	return len(name) <= 15 && !strings.ContainsAny(name, "/: \t\n") && name != "." && name != ".."
}

// externalPrefix begins the names of the dataplane's interfaces to the outside; no pod's begins so.
const externalPrefix = "weft-ext-"

// ExternalOf names the dataplane's interface of an external interface.
func ExternalOf(name string) string {
	if object := externalPrefix + name; len(object) <= maxObject {
		return object
	}
	return shortened(externalPrefix, name, maxObject)
}

// IsExternal reports whether an interface of the dataplane leads to the outside, and to no pod.
func IsExternal(object string) bool { return strings.HasPrefix(object, externalPrefix) }

// ExternalAliasPrefix begins the alias of each link that is made for an external interface.
const ExternalAliasPrefix = "weft:external:"

// ExternalAlias marks a link with the external interface that it belongs to.
func ExternalAlias(name string) string {
	if alias := ExternalAliasPrefix + name; len(alias) <= maxAlias {
		return alias
	}
	return shortened(ExternalAliasPrefix, name, maxAlias)
}

// Names that each node has once. All of ours begin with weft, so that what is left over is never taken for foreign.
const (
	PodsLabel     = "weft:pods"
	GatewayObject = "weft-gateway"
	HostObject    = "weft-host"
	HostAlias     = wire.AliasPrefix + "host"
	TunnelObject  = "weft-vtep"
	UplinkObject  = "weft-uplink"
	PuntingObject = "weft-punt"
)

// RuntimesName is what runtimes call the interface that they ask for. Other names are given by plugins that call others,
// which identifies the interface of a delegate if no record exists.
const RuntimesName = "eth0"

// How long names may be, in bytes.
const (
	maxAlias  = 255 // what the kernel keeps of a link's alias
	maxObject = 48  // what the tag of an interface has room for
	maxLabel  = 58  // what the name of a table has room for
)

// The gateways that every pod has. They are link-local and stand behind each interface, so no address of a pool is
// spent on them and a pod's routes never change.
var (
	Gateway4 = netip.AddrFrom4([4]byte{169, 254, 1, 1})
	Gateway6 = netip.AddrFrom16([16]byte{0xfe, 0x80, 15: 1})
)

// ErrorSource6 is the address of the gateway's loopback from which the dataplane sends ICMPv6 errors to pods. VPP takes no
// link-local address as their source. It is the same on each node, as the gateways are, and of a unique local prefix.
var ErrorSource6 = netip.AddrFrom16([16]byte{0: 0xfd, 1: 'w', 2: 'e', 3: 'f', 4: 't', 5: 2, 15: 1})

// GatewayOf is the gateway of every pod for a family.
func GatewayOf(f wire.Family) netip.Addr {
	if f == wire.IP4 {
		return Gateway4
	}
	return Gateway6
}

// DefaultOf is the destination of the default route of a family.
func DefaultOf(f wire.Family) netip.Prefix {
	if f == wire.IP4 {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

// ObjectName names the dataplane's interface behind one interface of an attachment: at most 37 bytes.
func ObjectName(k pod.Key, ifName string) string {
	sum := sha256.Sum256([]byte(k.String()))
	return "weft-" + hex.EncodeToString(sum[:8]) + "-" + ifName
}

// HostName names the node's end of a veth: as long as a name of a link can be.
func HostName(object string) string {
	sum := sha256.Sum256([]byte(object))
	return "weft" + hex.EncodeToString(sum[:])[:11]
}

// AliasOf marks a link with the attachment that it belongs to, and with its name if it is not the main interface. What is
// too long for the kernel is marked by its hash: the link is still known as ours, but not whose it is.
func AliasOf(k pod.Key, ifName string) string {
	alias := wire.AliasPrefix + HolderOf(k, ifName)
	if len(alias) > maxAlias {
		sum := sha256.Sum256([]byte(HolderOf(k, ifName)))
		return wire.AliasPrefix + "sha256:" + hex.EncodeToString(sum[:])
	}
	return alias
}

// LabelOf names the VRFs and the bridge domain of a custom network.
func LabelOf(network string) string {
	if label := "weft:" + network; label != PodsLabel && len(label) <= maxLabel {
		return label
	}
	return shortened("weft:", network, maxLabel)
}

// IsShared reports whether all pods of the node or of one of its networks need the object of a key: the host link, the gateway,
// the uplink in the dataplane, and the VRF tables, bridge domains and gateways of networks. Tunnels to other nodes are not shared
// objects.
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
	return object == HostObject || object == GatewayObject || object == UplinkObject || object == PuntingObject || strings.HasPrefix(object, LoopbackOf(""))
}

// IsNodes reports whether an interface of the dataplane is one that each node has once: a link to its kernel, or its network card.
func IsNodes(object string) bool {
	return object == HostObject || object == TunnelObject || object == UplinkObject || object == PuntingObject
}

// LoopbackOf names the loopback that stands for a custom network: its gateway or its BVI.
func LoopbackOf(network string) string {
	if name := "weft-gw-" + network; len(name) <= maxObject {
		return name
	}
	return shortened("weft-gw-", network, maxObject)
}

// MeshLabelOf names the bridge domain in which a routed network reaches other nodes.
func MeshLabelOf(network string) string {
	if label := "weft:vxlan:" + network; len(label) <= maxLabel {
		return label
	}
	return shortened("weft:vxlan:", network, maxLabel)
}

// BVIOf names the loopback by which a routed network enters that bridge domain.
func BVIOf(network string) string {
	if name := "weft-bvi-" + network; len(name) <= maxObject {
		return name
	}
	return shortened("weft-bvi-", network, maxObject)
}

// TunnelOf names the tunnel of a network to a node.
func TunnelOf(network string, node uint32) string {
	const prefix = "weft-vx-"
	end := "-" + strconv.FormatUint(uint64(node), 10)
	if name := prefix + network + end; len(name) <= maxObject {
		return name
	}
	return shortened(prefix, network, maxObject-len(end)) + end
}

// MaxNode is the highest ID of a node that has addresses in the mesh.
const MaxNode = 1<<16 - 1

// MeshMAC is the MAC of a node's loopbacks in the mesh: locally administered unicast, and no other end's.
func MeshMAC(node uint32) wire.MAC {
	return wire.MAC{0x12, 0x2b, byte(node >> 24), byte(node >> 16), byte(node >> 8), byte(node)}
}

// MeshAddress is a node's own address among the nodes of a network. They are link-local: none of a pool is spent on them,
// and that of IPv4 is a name for a neighbour only. The pods' gateway is none of them.
func MeshAddress(node uint32, f wire.Family) netip.Addr {
	high, low := byte(node>>8), byte(node)
	if f == wire.IP6 {
		return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 13: 0x2b, 14: high, 15: low})
	}
	a := netip.AddrFrom4([4]byte{169, 254, high, low})
	if a == Gateway4 {
		return netip.AddrFrom4([4]byte{169, 254, 0, 0}) // which would be that of node 0
	}
	return a
}

// shortened is a name with a hash in place of its end. The dot, which no name of a network holds, keeps it apart from
// those that are whole.
func shortened(prefix, name string, most int) string {
	sum := sha256.Sum256([]byte(name))
	end := "." + hex.EncodeToString(sum[:8])
	return prefix + name[:min(len(name), most-len(prefix)-len(end))] + end
}

// PoolOfNetwork names the pool of a custom network; the colon keeps it apart from the node's pools.
func PoolOfNetwork(network string, f wire.Family) string { return network + ":" + string(f) }

// NetworkOfPool is the custom network that a pool belongs to; "" for those of the node.
func NetworkOfPool(pool string) string {
	network, _, found := strings.Cut(pool, ":")
	if !found {
		return ""
	}
	return network
}

// An end of a link. Its value is the first octet of the end's MAC: locally administered unicast, and never equal to
// that of another end.
type end byte

const (
	LinuxEnd     end = 0x02
	DataplaneEnd end = 0x06
	HostEnd      end = 0x0a // of a veth; were it the dataplane's, the kernel would take the pod's packets for its own
)

// MACOf derives the MAC of one end of the interface that the dataplane calls object. It depends on nothing else, so a
// pod's gateway has the same one after every restart.
func MACOf(object string, e end) wire.MAC {
	sum := sha256.Sum256([]byte(object))
	mac := wire.MAC(sum[:6])
	mac[0] = byte(e)
	return mac
}

// LinkLocalOf is the address that the kernel derives from the MAC of a link (RFC 4291, appendix A).
func LinkLocalOf(m wire.MAC) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 8: m[0] ^ 2, 9: m[1], 10: m[2], 11: 0xff, 12: 0xfe, 13: m[3], 14: m[4], 15: m[5]})
}

// HolderOf is who holds the addresses of one interface of an attachment.
func HolderOf(k pod.Key, ifName string) string {
	if ifName == k.IfName {
		return k.String()
	}
	return k.String() + "/" + ifName
}

// IsCustom tells custom networks from those that always exist.
func IsCustom(network string) bool {
	return network != "" && network != pod.DefaultNetwork && network != pod.StubNetwork
}

// NetworkOf is a network's name as interfaces have it.
func NetworkOf(network string) string {
	if network == pod.DefaultNetwork {
		return ""
	}
	return network
}

// UplinkLink is the name of the kernel's end of the link to a dataplane that owns the node's network card.
const UplinkLink = "weft-uplink0"

// UplinkKey is the key of the dataplane's interface on the card.
func UplinkKey() string { return wire.InterfaceKey(UplinkObject) }

// Forwarding are the settings by which a kernel's namespace, the node's or a pod's, forwards packets of a family.
var Forwarding = map[wire.Family]string{
	wire.IP4: "net/ipv4/ip_forward",
	wire.IP6: "net/ipv6/conf/all/forwarding",
}

// VethObject returns the name of the dataplane's interface that the veth of a pod or of the tunnels belongs to, from the name and
// the alias of the end that the dataplane has; ok is false for any other link. The alias of a long name is a hash, which does not
// tell.
func VethObject(host, alias string) (object, ifName string, ok bool) {
	if alias == TunnelAlias {
		return TunnelObject, DefaultTunnelLink, host == HostName(TunnelObject)
	}
	key, ifName, err := ParseAlias(alias)
	if err != nil {
		return "", "", false
	}
	object = ObjectName(key, ifName)
	return object, ifName, host == HostName(object)
}

// ParseAlias is the inverse of aliasOf.
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
// The dataplane sends from an address that it has (VPP drops everything else), and the kernel, which keeps the uplink, puts
// the node's address in its place (wire.TunnelNAT). Peers see tunnels between the addresses of nodes. The VRF has nothing but
// the way to each peer: pods are in other VRFs, and a packet to a machine that is no peer is dropped.
const (
	DefaultTunnelLink = "weft-vtep0"
	TunnelAlias       = wire.AliasPrefix + "vtep"
	TunnelLabel       = "weft:vxlan:.ends" // begins as meshLabelOf does; no name of a network begins with a dot
)

// TunnelVRF routes the envelopes of all tunnels.
var TunnelVRF = VRF{Label: TunnelLabel}
