package wire

import "net/netip"

// AliasPrefix begins the alias (ifalias) of every link that only Weft configures.
const AliasPrefix = "weft:"

// TapPeer is the Linux end of a tap: made with the tap by the dataplane, marked and finished by us. Kind
// linux.tap-peer; its name is that of its vpp.interface.
type TapPeer struct {
	Interface string `json:"interface"`           // name of a vpp.interface of type tap
	Namespace string `json:"namespace,omitempty"` // path; "" = the host's
	Name      string `json:"name"`
	MAC       MAC    `json:"mac"`
	MTU       int    `json:"mtu"`
	Alias     string `json:"alias"` // kept in the kernel (ifalias, at most 255 bytes): who this link belongs to
	Up        bool   `json:"up"`
}

// TapPeerKey is the key of the Linux end of the tap of that name.
func TapPeerKey(iface string) string { return Key(KindTapPeer, iface) }

// LinuxAddress is an address of a link. Kind linux.address. IPv6 addresses are made without duplicate address
// detection: they are usable at once.
type LinuxAddress struct {
	On        string       `json:"on"`                  // key of the link's object (a linux.tap-peer or linux.veth)
	Namespace string       `json:"namespace,omitempty"` // path; "" = the host's
	Link      string       `json:"link"`                // name of the link in the namespace
	Prefix    netip.Prefix `json:"prefix"`
}

// LinuxAddressKey is the key of an address of the link whose object has the key on.
func LinuxAddressKey(on string, p netip.Prefix) string {
	return Key(KindLinuxAddress, on+"/"+p.String())
}

// LinuxRoute is a route of the kernel in a namespace's main table. Kind linux.route. A route to the same destination
// that is already there and leads elsewhere is a conflict, never replaced.
type LinuxRoute struct {
	On          string       `json:"on"`                  // key of the link's object
	Namespace   string       `json:"namespace,omitempty"` // path; "" = the host's
	Link        string       `json:"link"`
	Destination netip.Prefix `json:"destination"`      // masked; 0.0.0.0/0 and ::/0 are the defaults
	Gateway     netip.Addr   `json:"gateway,omitzero"` // not valid: on the link itself
	Source      netip.Addr   `json:"source,omitzero"`  // preferred source
	MTU         int          `json:"mtu,omitempty"`
}

// LinuxRouteKey is the key of the route to a destination by the link whose object has the key on.
func LinuxRouteKey(on string, destination netip.Prefix) string {
	return Key(KindLinuxRoute, on+"/"+destination.String())
}

// LinuxNeighbour is a permanent neighbour entry of a link. Kind linux.neighbour.
type LinuxNeighbour struct {
	On        string     `json:"on"`                  // key of the link's object
	Namespace string     `json:"namespace,omitempty"` // path; "" = the host's
	Link      string     `json:"link"`
	Address   netip.Addr `json:"address"`
	MAC       MAC        `json:"mac"`
}

// LinuxNeighbourKey is the key of the neighbour of that address on the link whose object has the key on.
func LinuxNeighbourKey(on string, a netip.Addr) string {
	return Key(KindLinuxNeighbour, on+"/"+a.String())
}

// Hardening makes a Linux end ignore router advertisements and redirects, and learn no address by itself. Kind linux.hardening.
// A tap's end and a veth's are hardened before they are set up; the object is how that is audited, and how links of earlier
// versions get it. Removing it does nothing: it goes with its link.
type Hardening struct {
	On        string `json:"on"`                  // key of the link's object
	Namespace string `json:"namespace,omitempty"` // path; "" = the host's
	Link      string `json:"link"`
}

// HardeningKey is the key of the hardening of the link whose object has the key on.
func HardeningKey(on string) string { return Key(KindHardening, on) }

// Sysctl is a kernel setting of a link, below net. Kind linux.sysctl. Removing it does nothing: it goes with its link.
type Sysctl struct {
	On        string `json:"on"`                  // key of the link's object
	Namespace string `json:"namespace,omitempty"` // path; "" = the host's
	Name      string `json:"name"`                // with slashes, below /proc/sys: net/ipv6/conf/eth0/accept_ra
	Value     string `json:"value"`
}

// SysctlKey is the key of the setting of that name that belongs to the link whose object has the key on.
func SysctlKey(on, name string) string { return Key(KindSysctl, on+"/"+name) }
