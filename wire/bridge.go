package wire

import "github.com/weftnet/weft/internal/netaddr"

// BridgeDomain is a layer 2 network in the dataplane. Kind vpp.bridge-domain; its name is its label.
type BridgeDomain struct {
	ID      uint32 `json:"id"`    // 1 to 16777215
	Label   string `json:"label"` // shown by the dataplane, at most 58 bytes, no #
	Learn   bool   `json:"learn"`
	Flood   bool   `json:"flood"`   // broadcast and multicast
	UUFlood bool   `json:"uuFlood"` // unknown unicast
	Forward bool   `json:"forward"`
	Age     uint8  `json:"age"` // minutes after which a learned MAC is forgotten; 0 = never
}

// BridgeDomainKey returns the key of a bridge domain.
func BridgeDomainKey(name string) string { return Key(KindBridgeDomain, name) }

// BridgeMember puts an interface into a bridge domain. Kind vpp.bd-member; its name is the interface's, which can be in
// one bridge domain only. The dataplane does not forward between members of the same split-horizon group other than 0.
// A BVI is a loopback that routes the bridge domain.
type BridgeMember struct {
	BridgeDomain      string `json:"bridgeDomain"` // name of a vpp.bridge-domain
	Interface         string `json:"interface"`    // name of a vpp.interface
	SplitHorizonGroup uint8  `json:"splitHorizonGroup,omitempty"`
	BVI               bool   `json:"bvi,omitempty"`
	AntiSpoofed       bool   `json:"judged,omitempty"` // depends on the interface's vpp.macip-acl

	Untag int `json:"untag,omitempty"` // number of tags of an interface of type sub that the bridge domain does not see

	Filtered bool `json:"filtered,omitempty"` // depends on the interface's vpp.interface-acl

	// Rest is the key of the part of the interface that keeps the tagged frames of no VLAN from the bridge domain, a
	// dependency; "": none.
	Rest string `json:"rest,omitempty"`

	// LinuxEnd is the key of the object that makes the interface's Linux end, a dependency; "": none.
	LinuxEnd string `json:"linuxEnd,omitempty"`
}

// BridgeMemberKey returns the key of the membership of an interface.
func BridgeMemberKey(iface string) string { return Key(KindBridgeMember, iface) }

// L2FIB is a static entry of a bridge domain's MAC table. Kind vpp.l2fib.
type L2FIB struct {
	BridgeDomain string      `json:"bridgeDomain"` // name of a vpp.bridge-domain
	MAC          netaddr.MAC `json:"mac"`
	Interface    string      `json:"interface"` // name of a vpp.interface, a member other than the BVI
}

// L2FIBName returns the name of the entry of a MAC in a bridge domain.
func L2FIBName(bridgeDomain string, mac netaddr.MAC) string { return bridgeDomain + "/" + mac.String() }

// L2FIBKey returns the key of L2FIBName(bridgeDomain, mac).
func L2FIBKey(bridgeDomain string, mac netaddr.MAC) string {
	return Key(KindL2FIB, L2FIBName(bridgeDomain, mac))
}
