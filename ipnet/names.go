package ipnet

import (
	"crypto/sha256"
	"encoding/hex"
	"net/netip"

	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// Names that each node has once. All of ours begin with weft, so that what is left over is never taken for foreign.
const (
	podVRF        = "weft:pods"
	gatewayObject = "weft-gateway"
	hostObject    = "weft-host"
	hostAlias     = "weft:host"
)

// leasesBucket is where leases are kept, under their own keys.
const leasesBucket = "leases"

// maxAlias is what the kernel keeps of a link's alias, in bytes.
const maxAlias = 255

// The gateways that every pod has. They are link-local and stand behind each interface, so no address of a pool is
// spent on them and a pod's routes never change.
var (
	gateway4 = netip.AddrFrom4([4]byte{169, 254, 1, 1})
	gateway6 = netip.AddrFrom16([16]byte{0xfe, 0x80, 15: 1})
)

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

// aliasOf marks a link with the attachment that it belongs to. A key too long for the kernel is marked by its hash:
// the link is still known as ours, but not whose it is.
func aliasOf(k pod.Key) string {
	alias := "weft:" + k.String()
	if len(alias) > maxAlias {
		sum := sha256.Sum256([]byte(k.String()))
		return "weft:sha256:" + hex.EncodeToString(sum[:])
	}
	return alias
}

// An end of a tap. Its value is the first octet of the end's MAC: locally administered unicast, and never equal to
// that of the other end.
type end byte

const (
	linuxEnd     end = 0x02
	dataplaneEnd end = 0x06
)

// macOf derives the MAC of one end of the interface that the dataplane calls object. It depends on nothing else, so a
// pod's gateway has the same one after every restart.
func macOf(object string, e end) wire.MAC {
	sum := sha256.Sum256([]byte(object))
	mac := wire.MAC(sum[:6])
	mac[0] = byte(e)
	return mac
}

// holderOf is who holds an attachment's addresses.
func holderOf(k pod.Key) string { return k.String() }
