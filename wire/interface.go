package wire

import (
	"net/netip"

	"github.com/weftnet/weft/internal/netaddr"
)

// InterfaceType is the type of an interface of the dataplane.
type InterfaceType string

// The types of interface.
const (
	TypeTap      InterfaceType = "tap"
	TypeLoopback InterfaceType = "loopback"
	TypeAFPacket InterfaceType = "af_packet"
	TypeMemif    InterfaceType = "memif"
	TypeVXLAN    InterfaceType = "vxlan"
	TypeSub      InterfaceType = "sub"
)

// MaxQueues bounds the queues of a Linux link in each direction. Each uses memory of dataplane and kernel, and with VPP
// a kernel thread.
const MaxQueues = 16

// Interface is an interface of the dataplane. Kind vpp.interface. Its name, of at most 48 bytes, identifies it there:
// the interface's tag has the name and a hash of the fields that the dataplane does not report.
type Interface struct {
	Type InterfaceType `json:"type"`
	MAC  netaddr.MAC   `json:"mac"` // of the dataplane's end
	MTU  int           `json:"mtu"` // layer 3, bytes; 0 = the dataplane's default
	Up   bool          `json:"up"`
	// software segmentation of packets that are too long for its link, in tunnels
	GSO bool `json:"gso,omitempty"`
	Tap Tap  `json:"tap,omitzero"` // of type tap

	AFPacket AFPacket `json:"afPacket,omitzero"` // of type af_packet
	Memif    Memif    `json:"memif,omitzero"`    // of type memif
	VXLAN    VXLAN    `json:"vxlan,omitzero"`    // of type vxlan
	Sub      Sub      `json:"sub,omitzero"`      // of type sub
}

// Sub has the fields of interfaces of type sub: a part of the frames of another interface, by their VLAN tags. It has
// the MAC and the MTU of the other one.
type Sub struct {
	Parent string `json:"parent"`          // name of a vpp.interface
	Outer  int    `json:"outer,omitempty"` // VLAN of the tag of 802.1ad before that of VLAN; 0: none
	VLAN   int    `json:"vlan,omitempty"`  // of the tag of 802.1Q; 0: the tagged frames that belong to no other
}

// Tags returns the number of tags that the frames have, apart from those of the rest.
func (s Sub) Tags() int {
	switch {
	case s.Outer != 0:
		return 2
	case s.VLAN != 0:
		return 1
	}
	return 0
}

// MaxVLAN is the highest VLAN; 4095 is reserved.
const MaxVLAN = 4094

// Tap has the fields of interfaces of type tap, which describe the Linux end.
type Tap struct {
	Namespace string      `json:"namespace,omitempty"` // path of a linux.netns; "" = the dataplane's own
	Name      string      `json:"name"`                // of the Linux end, at most 15 bytes
	MAC       netaddr.MAC `json:"mac"`                 // of the Linux end
	MTU       int         `json:"mtu"`                 // of the Linux end, bytes
	Queues    int         `json:"queues,omitempty"`    // pairs of queues, at most MaxQueues; 0 = one
}

// AFPacket has the fields of interfaces of type af_packet, which read and write a Linux link.
type AFPacket struct {
	Link string `json:"link"` // name of the link in the dataplane's own namespace, at most 15 bytes
	On   string `json:"on"`   // key of the object that makes the link (a linux.veth, linux.link or linux.vlan)

	RxQueues int `json:"rxQueues,omitempty"` // of the dataplane, at most MaxQueues; 0 = one
	TxQueues int `json:"txQueues,omitempty"` // likewise
}

// InterfaceKey returns the key of an interface.
func InterfaceKey(name string) string { return Key(KindInterface, name) }

// VXLANPort is the UDP port that IANA assigned to VXLAN (RFC 7348).
const VXLANPort = 4789

// MaxVNI is the largest VXLAN network identifier.
const MaxVNI = 1<<24 - 1

// VXLAN has the fields of interfaces of type vxlan: a tunnel to another node. Both addresses are of one family.
type VXLAN struct {
	Source      netip.Addr `json:"source"` // an address of the dataplane in the table
	Destination netip.Addr `json:"destination"`
	VNI         uint32     `json:"vni"`  // 1 to 2^24-1
	Port        uint16     `json:"port"` // UDP, of both ends; 0 is VXLANPort
	// ID of the vpp.vrf that routes the outer packets; 0 is the dataplane's own
	Table uint32 `json:"table,omitempty"`
}
