package wire

// Link is a link of the node that another component made and that ours use, such as a network card. Kind linux.link; its name
// is the link's. It is never made or removed: to create it is to find it there, and to set it up. When it is gone, what
// depends on it goes too, and comes back with it.
type Link struct {
	Name string `json:"name"` // in the namespace of agent and dataplane, at most 15 bytes
	Up   bool   `json:"up"`   // false: as it is
	// Unmerged: the kernel hands over packets as they were received, without GRO and LRO. Afterwards GRO is on again.
	Unmerged bool `json:"unmerged,omitempty"`
}

// LinkKey is the key of the link of that name.
func LinkKey(name string) string { return Key(KindLink, name) }

// VLAN is a Linux link that has the frames of one VLAN of another link, without their tags. Kind linux.vlan; its name is that
// of the vpp.interface of type af_packet that holds it. It is the dataplane's alone, as the host's end of a Veth is.
type VLAN struct {
	Parent string `json:"parent"` // name of a linux.link
	ID     int    `json:"id"`     // 1 to 4094
	Name   string `json:"name"`   // of the link itself, at most 15 bytes
	Alias  string `json:"alias"`  // kept in the kernel (ifalias, at most 255 bytes): who it belongs to
	Up     bool   `json:"up"`
}

// VLANKey is the key of the VLAN link that belongs to the interface of that name.
func VLANKey(iface string) string { return Key(KindVLAN, iface) }
