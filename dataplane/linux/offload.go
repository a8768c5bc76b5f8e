package linux

import "github.com/vishvananda/netlink"

// offloadFeatures are the offloads of a veth that the dataplane cannot do for the pod's kernel, as the virtio header of
// a packet socket does not express them: the CRC of SCTP, and segments of SCTP, of UDP (before Linux 6.2, and for VPP)
// and behind the headers of a tunnel. The kernel then drops the packet or describes another one. Without them the pod's
// kernel does this work itself.
var offloadFeatures = []string{
	"tx-checksum-sctp", "tx-sctp-segmentation", "tx-udp-segmentation", "tx-gso-list", "tx-gso-partial",
	"tx-udp_tnl-segmentation", "tx-udp_tnl-csum-segmentation", "tx-gre-segmentation", "tx-gre-csum-segmentation",
	"tx-ipxip4-segmentation", "tx-ipxip6-segmentation", "tx-tunnel-remcsum-segmentation", "tx-esp-segmentation",
}

// offloadsOf returns the active ones of a link in the thread's namespace.
func offloadsOf(l netlink.Link) (map[string]bool, error) { return activeFeatures(l, offloadFeatures) }

// dropOffloads turns them off.
func dropOffloads(l netlink.Link) error {
	active, err := offloadsOf(l)
	if err != nil {
		return refused(err)
	}
	return refused(setFeatures(l.Attrs().Name, active, func(bool) bool { return false }))
}
