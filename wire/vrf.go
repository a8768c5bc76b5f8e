package wire

// VRF is a routing table of one family in the dataplane (VPP: an IP table). Kind vpp.vrf.
type VRF struct {
	ID     uint32 `json:"id"` // table id, 1 to 2^32-2; 0 is the dataplane's own and always there
	Family Family `json:"family"`
	Label  string `json:"label"` // shown by the dataplane, at most 63 bytes
}

// VRFName names the VRF of one family; label is unique among the tables of the node.
func VRFName(label string, f Family) string { return label + "/" + string(f) }

// VRFKey is the key of VRFName(label, f).
func VRFKey(label string, f Family) string { return Key(KindVRF, VRFName(label, f)) }
