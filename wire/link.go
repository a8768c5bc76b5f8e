package wire

import (
	"net/netip"
	"strconv"

	"github.com/weftnet/weft/internal/netaddr"
)

// Namespace is a network namespace that another component made. Kind linux.netns; its name is the path. The object is
// not made or removed: Create checks that the path has the inode of the pod's ADD. When the namespace is deleted, its
// dependents are deleted, too: otherwise a tap that the dataplane has open would keep it alive.
type Namespace struct {
	Path   string `json:"path"`
	Inode  uint64 `json:"inode"`
	Device uint64 `json:"device"`
}

// NamespaceKey returns the key of the namespace at path.
func NamespaceKey(path string) string { return Key(KindNamespace, path) }

// AliasPrefix begins the alias (ifalias) of every link that only Weft configures.
const AliasPrefix = "weft:"

// TapPeer is the configuration of a tap's Linux end, which the dataplane makes with the tap. Kind linux.tap-peer; its
// name is the name of its vpp.interface.
type TapPeer struct {
	Interface string      `json:"interface"`           // name of a vpp.interface of type tap
	Namespace string      `json:"namespace,omitempty"` // path; "" = the host's
	Name      string      `json:"name"`
	MAC       netaddr.MAC `json:"mac"`
	MTU       int         `json:"mtu"`
	Alias     string      `json:"alias"` // ifalias, 1 to 255 bytes; names the owner of the link
	Up        bool        `json:"up"`
}

// TapPeerKey returns the key of the Linux end of a tap.
func TapPeerKey(iface string) string { return Key(KindTapPeer, iface) }

// LinuxAddress is an address of a link. Kind linux.address. IPv6 addresses are usable at once, without duplicate
// address detection.
type LinuxAddress struct {
	On        string       `json:"on"`                  // key of the link's object (a linux.tap-peer or linux.veth)
	Namespace string       `json:"namespace,omitempty"` // path; "" = the host's
	Link      string       `json:"link"`                // name of the link in the namespace
	Prefix    netip.Prefix `json:"prefix"`
}

// LinuxAddressKey returns the key of an address. on is the key of the link's object.
func LinuxAddressKey(on string, p netip.Prefix) string {
	return Key(KindLinuxAddress, on+"/"+p.String())
}

// LinuxRoute is a route of the kernel in a namespace's main table. Kind linux.route. A foreign route to the same
// destination with another next hop is an error and is not replaced.
type LinuxRoute struct {
	On          string       `json:"on"`                  // key of the link's object
	Namespace   string       `json:"namespace,omitempty"` // path; "" = the host's
	Link        string       `json:"link"`
	Destination netip.Prefix `json:"destination"`      // masked
	Gateway     netip.Addr   `json:"gateway,omitzero"` // invalid: on the link itself
	Source      netip.Addr   `json:"source,omitzero"`  // preferred source
	MTU         int          `json:"mtu,omitempty"`
	Metric      int          `json:"metric,omitempty"` // 0 = the kernel's default: 0 of IPv4, 1024 of IPv6
}

// Key returns the key of a route: that of LinuxRouteKey, with the metric if the route has one.
func (r LinuxRoute) Key() string {
	key := LinuxRouteKey(r.On, r.Destination)
	if r.Metric == 0 {
		return key
	}
	return key + "/" + strconv.Itoa(r.Metric)
}

// LinuxRouteKey returns the key of a route without metric. on is the key of the link's object.
func LinuxRouteKey(on string, destination netip.Prefix) string {
	return Key(KindLinuxRoute, on+"/"+destination.String())
}

// LinuxNeighbour is a permanent neighbour entry of a link. Kind linux.neighbour.
type LinuxNeighbour struct {
	On        string      `json:"on"`                  // key of the link's object
	Namespace string      `json:"namespace,omitempty"` // path; "" = the host's
	Link      string      `json:"link"`
	Address   netip.Addr  `json:"address"`
	MAC       netaddr.MAC `json:"mac"`
}

// LinuxNeighbourKey returns the key of a neighbour. on is the key of the link's object.
func LinuxNeighbourKey(on string, a netip.Addr) string {
	return Key(KindLinuxNeighbour, on+"/"+a.String())
}

// Hardening makes a Linux end ignore router advertisements and redirects, and disables SLAAC. Kind linux.hardening. The
// ends of taps and veths are hardened before they are up; the object audits that, and hardens links of earlier
// versions. Its removal has no effect: the settings end with the link.
type Hardening struct {
	On        string `json:"on"`                  // key of the link's object
	Namespace string `json:"namespace,omitempty"` // path; "" = the host's
	Link      string `json:"link"`
}

// HardeningKey returns the key of the hardening of a link. on is the key of the link's object.
func HardeningKey(on string) string { return Key(KindHardening, on) }

// Sysctl is a kernel setting of a link, below net. Kind linux.sysctl. Its removal has no effect: the setting ends with
// the link.
type Sysctl struct {
	On        string `json:"on"`                  // key of the link's object
	Namespace string `json:"namespace,omitempty"` // path; "" = the host's
	Name      string `json:"name"`                // with slashes, below /proc/sys: net/ipv6/conf/eth0/accept_ra
	Value     string `json:"value"`
}

// SysctlKey returns the key of a setting. on is the key of the link's object.
func SysctlKey(on, name string) string { return Key(KindSysctl, on+"/"+name) }

// Announcement tells the neighbours of a pod on a layer 2 network which MAC an address of the pod has: a gratuitous ARP
// request, or an unsolicited neighbour advertisement, from the pod's link. Kind linux.announcement. Neighbours that
// have an entry of an earlier pod with the address would use its MAC for up to a minute. It is sent when the link or
// its place in the network is made or made again. Its removal has no effect.
type Announcement struct {
	On        string     `json:"on"`                  // key of the link's object
	Namespace string     `json:"namespace,omitempty"` // path
	Link      string     `json:"link"`
	Address   netip.Addr `json:"address"`
	Member    string     `json:"member"` // key of the link's vpp.bd-member
}

// AnnouncementKey returns the key of the announcement of an address. on is the key of the link's object.
func AnnouncementKey(on string, address netip.Addr) string {
	return Key(KindAnnouncement, on+"/"+address.String())
}

// Veth is a veth pair. Kind linux.veth; its name is the name of the vpp.interface of type af_packet that uses the
// host's end. Only the dataplane uses that end: the kernel has no address on it and ignores packets that it receives.
type Veth struct {
	Namespace string      `json:"namespace,omitempty"` // path of a linux.netns, the pod's; "" = the node's
	Name      string      `json:"name"`                // in the pod, at most 15 bytes
	MAC       netaddr.MAC `json:"mac"`                 // in the pod
	HostName  string      `json:"hostName"`            // in the namespace of agent and dataplane, at most 15 bytes
	HostMAC   netaddr.MAC `json:"hostMAC"`
	MTU       int         `json:"mtu"`   // of both ends, bytes; 0 = the kernel's
	Alias     string      `json:"alias"` // of both ends (ifalias); names the owner
	Up        bool        `json:"up"`

	// MaxSegment is the maximum GSO packet of the pod's end, in bytes; 0 = the kernel's. The receive blocks of VPP may
	// be smaller than the kernel's 64 KiB.
	MaxSegment int `json:"maxSegment,omitempty"`

	RxQueues int `json:"rxQueues,omitempty"` // of the pod's end, at most MaxQueues; 0 = the kernel's default, one
	TxQueues int `json:"txQueues,omitempty"` // likewise
}

// VethKey returns the key of the veth of an interface.
func VethKey(iface string) string { return Key(KindVeth, iface) }

// Link is a link of the node that another component made, such as a network card. Kind linux.link; its name is the
// link's. The object is not made or removed: Create finds the link and sets it up. When the link is deleted, its
// dependents are deleted, too; they are recreated when it comes back.
type Link struct {
	Name string `json:"name"` // in the namespace of agent and dataplane, at most 15 bytes
	Up   bool   `json:"up"`   // false: any state
	// Unmerged turns GRO and LRO off, so that packets are as received. Deletion of the object turns GRO on.
	Unmerged bool `json:"unmerged,omitempty"`
	// Room is the lowest MTU of a link that carries the frames of trunks. The object does not change the MTU.
	Room int `json:"room,omitempty"`
}

// LinkKey returns the key of a link.
func LinkKey(name string) string { return Key(KindLink, name) }

// VLAN is a VLAN link. Kind linux.vlan; its name is the name of the vpp.interface of type af_packet that uses it. Only
// the dataplane uses it, like the host's end of a Veth.
type VLAN struct {
	Parent string `json:"parent"` // name of a linux.link
	ID     int    `json:"id"`     // 1 to 4094
	Name   string `json:"name"`   // of the link itself, at most 15 bytes
	Alias  string `json:"alias"`  // ifalias, 1 to 255 bytes; names the owner of the link
	Up     bool   `json:"up"`
}

// VLANKey returns the key of the VLAN link of an interface.
func VLANKey(iface string) string { return Key(KindVLAN, iface) }
