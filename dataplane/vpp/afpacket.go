package vpp

import (
	"errors"
	"fmt"
	"strings"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/af_packet"
	interfaces "go.fd.io/govpp/binapi/interface"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// hostLinkPrefix starts the dataplane's names of interfaces that hold a link of ours: one that has no tag yet is
// recognised by its name, however we died.
const hostLinkPrefix = "host-weft"

// newAFPacket makes the request for an interface that reads and writes a link of the dataplane's namespace.
func newAFPacket(name string, v wire.Interface) *request {
	return ask(fmt.Sprintf("af_packet_create_v3 %s (%s)", name, v.AFPacket.Link), &af_packet.AfPacketCreateV3{
		Mode:            af_packet.AF_PACKET_API_MODE_ETHERNET,
		UseRandomHwAddr: v.MAC.IsZero(), HwAddr: [6]byte(v.MAC), HostIfName: v.AFPacket.Link,
		NumRxQueues: queuesOf(v.AFPacket.RxQueues), NumTxQueues: queuesOf(v.AFPacket.TxQueues),
		// Without the first each packet of a pod is segmented and summed one by one; a veth has no queue to bypass, and
		// looking for one takes time.
		Flags: af_packet.AF_PACKET_API_FLAG_CKSUM_GSO | af_packet.AF_PACKET_API_FLAG_QDISC_BYPASS,
	}, &af_packet.AfPacketCreateV3Reply{})
}

// deleteAFPacket takes a link that the dataplane does not hold, which is VPP's system call error, for let go.
func deleteAFPacket(name string, v wire.Interface) *request {
	return ask(fmt.Sprintf("af_packet_delete %s (%s)", name, v.AFPacket.Link), &af_packet.AfPacketDelete{
		HostIfName: v.AFPacket.Link,
	}, &af_packet.AfPacketDeleteReply{}).fineIf(api.SYSCALL_ERROR_1)
}

func validateAFPacket(p wire.AFPacket) error {
	if p.Link == "" || len(p.Link) > maxLinkName {
		return fmt.Errorf("link %q: its name has 1 to %d bytes", p.Link, maxLinkName)
	}
	if _, err := kvscheduler.ParseRef(p.On); err != nil {
		return fmt.Errorf("object of link %s: %w", p.Link, err)
	}
	return errors.Join(validateQueues(p.RxQueues), validateQueues(p.TxQueues))
}

// linkOf is the dependency on the object that makes the link.
func linkOf(p wire.AFPacket) []kvscheduler.Dep {
	on, err := kvscheduler.ParseRef(p.On)
	if err != nil {
		return nil // validateAFPacket has said so
	}
	return []kvscheduler.Dep{{Label: "link", On: on, Mode: kvscheduler.Follow}}
}

// diedUntagged tells whether an interface has no tag and holds a link that is named like ours.
func diedUntagged(d *interfaces.SwInterfaceDetails) bool {
	return d.Tag == "" && strings.HasPrefix(d.InterfaceName, hostLinkPrefix)
}
