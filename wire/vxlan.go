package wire

import "net/netip"

// VXLANPort is the UDP port that IANA gave to VXLAN (RFC 7348).
const VXLANPort = 4789

// VXLAN holds what only an interface of type vxlan has: a tunnel to one other node. Both addresses are of one family.
type VXLAN struct {
	Source      netip.Addr `json:"source"` // an address of the dataplane in the table
	Destination netip.Addr `json:"destination"`
	VNI         uint32     `json:"vni"`             // 1 to 2^24-1
	Port        uint16     `json:"port"`            // UDP, of both ends; 0 is VXLANPort
	Table       uint32     `json:"table,omitempty"` // ID of the vpp.vrf that routes the envelopes; 0 is the dataplane's own
}
