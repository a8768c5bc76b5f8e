package policies

import (
	"net/netip"
)

// Protected are the destinations that pods may not contact by their main interfaces, whatever policies say. The zero
// value has no destination.
type Protected struct {
	Metadata bool     // the metadata services of clouds
	Ports    []uint16 // TCP ports of agents on all nodes
}

// metadataServices are the addresses of the metadata services of clouds. By these a pod could get the rights of its
// node.
var metadataServices = []netip.Prefix{
	netip.MustParsePrefix("169.254.169.254/32"), netip.MustParsePrefix("fd00:ec2::254/128"),
}
