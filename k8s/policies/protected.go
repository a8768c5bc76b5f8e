package policies

import (
	"net/netip"
	"slices"

	"github.com/weftnet/weft/policy"
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

// denied lists the protected destinations. link are the addresses of this node.
func (p *Policies) denied(link []netip.Prefix) []policy.Denied {
	var list []policy.Denied
	if p.config.Protected.Metadata {
		for _, prefix := range metadataServices {
			list = append(list, policy.Denied{Name: "kubernetes.protectNodes: metadata service", Prefix: prefix})
		}
	}
	if len(p.config.Protected.Ports) == 0 {
		return list
	}
	nodes := slices.Clone(link)
	for _, n := range p.nodes.All() {
		nodes = append(nodes, p.addressesOf(n)...)
	}
	slices.SortFunc(nodes, netip.Prefix.Compare)
	for _, prefix := range slices.Compact(nodes) {
		for _, port := range p.config.Protected.Ports {
			list = append(list, policy.Denied{
				Name:     "kubernetes.protectNodes: port of an agent",
				Prefix:   prefix,
				Protocol: policy.TCP,
				Ports:    policy.Range{First: port, Last: port},
			})
		}
	}
	return list
}
