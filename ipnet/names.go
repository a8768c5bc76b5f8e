package ipnet

import (
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"strconv"
	"strings"

	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// Names that each node has once. All of ours begin with weft, so that what is left over is never taken for foreign.
const (
	podVRF        = "weft:pods"
	gatewayObject = "weft-gateway"
	hostObject    = "weft-host"
	hostAlias     = wire.AliasPrefix + "host"
)

// Where leases are kept, under their own keys, networks, nodes and interfaces to the outside, under their names, blocks, under network and prefix, and
// attachments, under their keys. Those are somebody else's to keep, but for one that has handed over an address.
const (
	leasesBucket      = "leases"
	networksBucket    = "networks"
	nodesBucket       = "nodes"
	blocksBucket      = "blocks"
	externalsBucket   = "externals"
	poolsBucket       = "pools" // in which there is one thing
	poolsKey          = "default"
	attachmentsBucket = "attachments"
)

// runtimesName is what runtimes call the interface that they ask for. Other names are given by plugins that call others,
// which identifies the interface of a delegate if no record exists.
const runtimesName = "eth0"

// How long names may be, in bytes.
const (
	maxAlias  = 255 // what the kernel keeps of a link's alias
	maxObject = 48  // what the tag of an interface has room for
	maxLabel  = 58  // what the name of a table has room for
)

// The gateways that every pod has. They are link-local and stand behind each interface, so no address of a pool is
// spent on them and a pod's routes never change.
var (
	gateway4 = netip.AddrFrom4([4]byte{169, 254, 1, 1})
	gateway6 = netip.AddrFrom16([16]byte{0xfe, 0x80, 15: 1})
)

// errorSource6 is the address of the gateway's loopback from which the dataplane sends ICMPv6 errors to pods. VPP takes no
// link-local address as their source. It is the same on each node, as the gateways are, and of a unique local prefix.
var errorSource6 = netip.AddrFrom16([16]byte{0: 0xfd, 1: 'w', 2: 'e', 3: 'f', 4: 't', 5: 2, 15: 1})

func gatewayOf(f wire.Family) netip.Addr {
	if f == wire.IP4 {
		return gateway4
	}
	return gateway6
}

func defaultOf(f wire.Family) netip.Prefix {
	if f == wire.IP4 {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

// objectName names the dataplane's interface behind one interface of an attachment: at most 37 bytes.
func objectName(k pod.Key, ifName string) string {
	sum := sha256.Sum256([]byte(k.String()))
	return "weft-" + hex.EncodeToString(sum[:8]) + "-" + ifName
}

// hostName names the node's end of a veth: as long as a name of a link can be.
func hostName(object string) string {
	sum := sha256.Sum256([]byte(object))
	return "weft" + hex.EncodeToString(sum[:])[:11]
}

// aliasOf marks a link with the attachment that it belongs to, and with its name if it is not the main interface. What is
// too long for the kernel is marked by its hash: the link is still known as ours, but not whose it is.
func aliasOf(k pod.Key, ifName string) string {
	alias := wire.AliasPrefix + holderOf(k, ifName)
	if len(alias) > maxAlias {
		sum := sha256.Sum256([]byte(holderOf(k, ifName)))
		return wire.AliasPrefix + "sha256:" + hex.EncodeToString(sum[:])
	}
	return alias
}

// labelOf names the VRFs and the bridge domain of a custom network.
func labelOf(network string) string {
	if label := "weft:" + network; label != podVRF && len(label) <= maxLabel {
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
		return !strings.HasPrefix(name, meshLabelOf(""))
	}
	for _, on := range []string{wire.VethKey(""), wire.TapPeerKey("")} {
		name = strings.TrimPrefix(name, on)
	}
	object, _, _ := strings.Cut(name, "/")
	return object == hostObject || object == gatewayObject || object == uplinkObject || object == puntingObject || strings.HasPrefix(object, loopbackOf(""))
}

// IsNodes reports whether an interface of the dataplane is one that each node has once: a link to its kernel, or its network card.
func IsNodes(object string) bool {
	return object == hostObject || object == tunnelObject || object == uplinkObject || object == puntingObject
}

// loopbackOf names the loopback that stands for a custom network: its gateway or its BVI.
func loopbackOf(network string) string {
	if name := "weft-gw-" + network; len(name) <= maxObject {
		return name
	}
	return shortened("weft-gw-", network, maxObject)
}

// meshLabelOf names the bridge domain in which a routed network reaches other nodes.
func meshLabelOf(network string) string {
	if label := "weft:vxlan:" + network; len(label) <= maxLabel {
		return label
	}
	return shortened("weft:vxlan:", network, maxLabel)
}

// bviOf names the loopback by which a routed network enters that bridge domain.
func bviOf(network string) string {
	if name := "weft-bvi-" + network; len(name) <= maxObject {
		return name
	}
	return shortened("weft-bvi-", network, maxObject)
}

// tunnelOf names the tunnel of a network to a node.
func tunnelOf(network string, node uint32) string {
	const prefix = "weft-vx-"
	end := "-" + strconv.FormatUint(uint64(node), 10)
	if name := prefix + network + end; len(name) <= maxObject {
		return name
	}
	return shortened(prefix, network, maxObject-len(end)) + end
}

// maxNode is the highest ID of a node that has addresses in the mesh.
const maxNode = 1<<16 - 1

// meshMAC is the MAC of a node's loopbacks in the mesh: locally administered unicast, and no other end's.
func meshMAC(node uint32) wire.MAC {
	return wire.MAC{0x12, 0x2b, byte(node >> 24), byte(node >> 16), byte(node >> 8), byte(node)}
}

// meshAddress is a node's own address among the nodes of a network. They are link-local: none of a pool is spent on them,
// and that of IPv4 is a name for a neighbour only. The pods' gateway is none of them.
func meshAddress(node uint32, f wire.Family) netip.Addr {
	high, low := byte(node>>8), byte(node)
	if f == wire.IP6 {
		return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 13: 0x2b, 14: high, 15: low})
	}
	a := netip.AddrFrom4([4]byte{169, 254, high, low})
	if a == gateway4 {
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

// networkOfPool is the custom network that a pool belongs to; "" for those of the node.
func networkOfPool(pool string) string {
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
	linuxEnd     end = 0x02
	dataplaneEnd end = 0x06
	hostEnd      end = 0x0a // of a veth; were it the dataplane's, the kernel would take the pod's packets for its own
)

// macOf derives the MAC of one end of the interface that the dataplane calls object. It depends on nothing else, so a
// pod's gateway has the same one after every restart.
func macOf(object string, e end) wire.MAC {
	sum := sha256.Sum256([]byte(object))
	mac := wire.MAC(sum[:6])
	mac[0] = byte(e)
	return mac
}

// linkLocalOf is the address that the kernel derives from the MAC of a link (RFC 4291, appendix A).
func linkLocalOf(m wire.MAC) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 8: m[0] ^ 2, 9: m[1], 10: m[2], 11: 0xff, 12: 0xfe, 13: m[3], 14: m[4], 15: m[5]})
}

// holderOf is who holds the addresses of one interface of an attachment.
func holderOf(k pod.Key, ifName string) string {
	if ifName == k.IfName {
		return k.String()
	}
	return k.String() + "/" + ifName
}

// macFor is the MAC of the pod's end: the one asked for, else one that follows from the object's name.
func (n *Network) macFor(ev *pod.AddPod, w wish, asked string) (wire.MAC, error) {
	if asked == "" {
		return macOf(w.object, linuxEnd), nil
	}
	code, what := pod.CodeInvalidConfig, ""
	if w.name != ev.Key.IfName {
		code, what = pod.CodeInvalidAnnotation, "interface "+w.name+": "
	}
	mac, err := wire.ParseMAC(asked)
	if err != nil {
		return wire.MAC{}, pod.Errorf(code, "%s: %sMAC asked for: %w", ev, what, err)
	}
	if !mac.IsUnicast() {
		return wire.MAC{}, pod.Errorf(code, "%s: %sMAC %s asked for is not one of a single interface: ask for a unicast MAC", ev, what, asked)
	}
	if n.isGateways(mac) || mac == macOf(w.object, dataplaneEnd) || mac == macOf(w.object, hostEnd) {
		return wire.MAC{}, pod.Errorf(pod.CodeAddressInUse, "%s: %sMAC %s asked for is the gateway's or the node's; ask for another one, or for none",
			ev, what, mac)
	}
	if c := n.holderOfMAC(mac.String()); c != nil && c.Key != ev.Key {
		return wire.MAC{}, pod.Errorf(pod.CodeAddressInUse, "%s: %sMAC %s asked for is held by %s (%s); ask for another one, or for none",
			ev, what, mac, c.Name(), c.Key)
	}
	return mac, nil
}

// distinct refuses a pod two of whose interfaces are to have one MAC.
func distinct(ev *pod.AddPod, wishes []wish) error {
	seen := make(map[wire.MAC]string)
	for _, w := range wishes {
		if other, taken := seen[w.mac]; taken {
			return pod.Errorf(pod.CodeAddressInUse, "%s: interface %s: MAC %s is that of interface %s; ask for another one, or for none",
				ev, w.name, w.mac, other)
		}
		seen[w.mac] = w.name
		for _, o := range wishes {
			if w.mac == macOf(o.object, dataplaneEnd) || w.mac == macOf(o.object, hostEnd) {
				return pod.Errorf(pod.CodeAddressInUse, "%s: interface %s: MAC %s is that of the gateway of interface %s; ask for another one, or for none",
					ev, w.name, w.mac, o.name)
			}
		}
	}
	return nil
}

func (n *Network) holderOfMAC(mac string) *connection {
	for _, c := range n.wired {
		for _, i := range c.Interfaces {
			if i.MAC == mac {
				return c
			}
		}
	}
	return nil
}

// isGateways reports whether a MAC is one that Weft gave to an interface of the dataplane or the node.
func (n *Network) isGateways(mac wire.MAC) bool {
	objects := []string{gatewayObject, hostObject, tunnelObject}
	for _, c := range n.customNetworks() {
		objects = append(objects, c.loopback)
	}
	for _, c := range n.wired {
		for _, i := range c.Interfaces {
			objects = append(objects, i.Object)
		}
	}
	for _, object := range objects {
		if mac == macOf(object, dataplaneEnd) || mac == macOf(object, hostEnd) {
			return true
		}
	}
	return mac == macOf(hostObject, linuxEnd) || mac == macOf(tunnelObject, linuxEnd)
}
