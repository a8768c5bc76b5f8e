package wire

// InterfaceType says what stands behind an interface of the dataplane.
type InterfaceType string

// The types of interface.
const (
	TypeTap      InterfaceType = "tap"
	TypeLoopback InterfaceType = "loopback"
	TypeAFPacket InterfaceType = "af_packet"
	TypeMemif    InterfaceType = "memif"
	TypeVXLAN    InterfaceType = "vxlan"
)

// MaxQueues bounds the queues of a Linux link, in each direction: each costs dataplane and kernel memory, and VPP a thread of
// the kernel's.
const MaxQueues = 16

// Interface is an interface of the dataplane. Kind vpp.interface. Its name is its identity there: it stands in the
// interface's tag, followed by a hash of what the dataplane cannot report back; so a name has at most 48 bytes.
type Interface struct {
	Type InterfaceType `json:"type"`
	MAC  MAC           `json:"mac"` // of the dataplane's end
	MTU  int           `json:"mtu"` // layer 3, bytes; 0 = the dataplane's default
	Up   bool          `json:"up"`
	GSO  bool          `json:"gso,omitempty"` // segments in software what its link cannot: long packets in tunnels
	Tap  Tap           `json:"tap,omitzero"`  // of type tap

	AFPacket AFPacket `json:"afPacket,omitzero"` // of type af_packet
	Memif    Memif    `json:"memif,omitzero"`    // of type memif
	VXLAN    VXLAN    `json:"vxlan,omitzero"`    // of type vxlan
}

// Tap holds what only an interface of type tap has: where its Linux end is made.
type Tap struct {
	Namespace string `json:"namespace,omitempty"` // path of the network namespace, which is an object of kind linux.netns; "" = the dataplane's own
	Name      string `json:"name"`                // of the Linux end, at most 15 bytes
	MAC       MAC    `json:"mac"`                 // of the Linux end
	MTU       int    `json:"mtu"`                 // of the Linux end, bytes
	Queues    int    `json:"queues,omitempty"`    // pairs of them, at most MaxQueues; 0 = one
}

// AFPacket holds what only an interface of type af_packet has: the Linux link that it reads and writes.
type AFPacket struct {
	Link string `json:"link"` // name of the link in the dataplane's own namespace, at most 15 bytes
	On   string `json:"on"`   // key of the object that makes the link (a linux.veth, linux.link or linux.vlan)

	RxQueues int `json:"rxQueues,omitempty"` // that the dataplane reads from, at most MaxQueues; 0 = one
	TxQueues int `json:"txQueues,omitempty"` // that it writes to; 0 = one
}

// InterfaceKey is the key of the interface of that name.
func InterfaceKey(name string) string { return Key(KindInterface, name) }

// InterfaceVRF puts an interface into a VRF, before it gets addresses. Kind vpp.interface-vrf.
type InterfaceVRF struct {
	Interface string `json:"interface"` // name of a vpp.interface
	Family    Family `json:"family"`
	VRF       string `json:"vrf"`              // name of a vpp.vrf of that family
	Judged    bool   `json:"judged,omitempty"` // not before the interface has its vpp.macip-acl
}

// InterfaceVRFName names the membership of an interface for one family.
func InterfaceVRFName(iface string, f Family) string { return iface + "/" + string(f) }

// InterfaceVRFKey is the key of InterfaceVRFName(iface, f).
func InterfaceVRFKey(iface string, f Family) string {
	return Key(KindInterfaceVRF, InterfaceVRFName(iface, f))
}
