package wire

// Policer limits the rate of the packets of an interface in one direction: a token bucket. Packets that exceed it are
// dropped. Kind vpp.policer.
type Policer struct {
	Interface string           `json:"interface"` // name of a vpp.interface
	Direction PolicerDirection `json:"direction"`
	Rate      uint32           `json:"rate"`           // kilobits per second, with Ethernet headers
	Burst     uint32           `json:"burst"`          // bytes
	DSCP      *uint8           `json:"dscp,omitempty"` // of the packets that conform; nil: their own

	// Some releases of VPP cannot police these.
	Bridged bool `json:"bridged,omitempty"` // the interface is a member of a bridge domain
	Bare    bool `json:"bare,omitempty"`    // its packets have no Ethernet headers
	Trunk   bool `json:"trunk,omitempty"`   // it has VLANs
}

// PolicerDirection is a direction as seen by the dataplane.
type PolicerDirection string

// The directions.
const (
	PoliceInput  PolicerDirection = "input"  // from the pod
	PoliceOutput PolicerDirection = "output" // to the pod
)

// PolicerName returns the name of the policer of an interface.
func PolicerName(iface string, d PolicerDirection) string { return iface + "/" + string(d) }

// PolicerKey returns the key of the policer of an interface.
func PolicerKey(iface string, d PolicerDirection) string {
	return Key(KindPolicer, PolicerName(iface, d))
}

// Equal reports whether both limit the same packets in the same way.
func (p Policer) Equal(o Policer) bool {
	sameDSCP := p.DSCP == o.DSCP || p.DSCP != nil && o.DSCP != nil && *p.DSCP == *o.DSCP
	p.DSCP = nil
	o.DSCP = nil
	return sameDSCP && p == o
}
