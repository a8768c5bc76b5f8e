package vpp

import (
	"cmp"
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

// Rings are the sizes of the rings that VPP shares with the kernel for an interface of type af_packet. VPP takes their memory
// when it creates the interface: its own defaults of 32 and 1024 frames cost 76 MiB and 65 ms each. weft-vswitch has no rings.
type Rings struct {
	RxFrames int // of 2 KiB in a receive block, of which VPP has 160, an even number; a block bounds the largest packet received
	TxFrames int // of 66 KiB in the transmit ring, an even number; what VPP sends at once beyond it is dropped
}

// The default rings take 7.6 MiB. A receive block holds a packet of an MTU of 9000 bytes. The transmit frames cannot be smaller:
// VPP copies packets into them without looking at their size.
const (
	defaultRxFrames = 6
	defaultTxFrames = 88
)

const (
	rxFrameBytes = 2048
	rxBlocks     = 160       // AF_PACKET_RX_BLOCK_NR of VPP's af_packet.c
	txFrameBytes = 33 * 2048 // AF_PACKET_DEFAULT_TX_FRAME_SIZE
)

func (r Rings) withDefaults() Rings {
	return Rings{cmp.Or(r.RxFrames, defaultRxFrames), cmp.Or(r.TxFrames, defaultTxFrames)}
}

// Bytes is the memory of one interface with one queue in each direction.
func (r Rings) Bytes() int {
	r = r.withDefaults()
	return r.RxFrames*rxFrameBytes*rxBlocks + r.TxFrames*txFrameBytes
}

// MaxSegment is the largest packet that fits into a receive block beside the kernel's headers. The kernel cuts off what is
// larger.
func (r Rings) MaxSegment() int { return r.withDefaults().RxFrames*rxFrameBytes - 256 }

// newAFPacket makes the request for an interface that reads and writes a link of the dataplane's namespace.
func newAFPacket(name string, v wire.Interface, rings Rings) *request {
	return ask(fmt.Sprintf("af_packet_create_v3 %s (%s)", name, v.AFPacket.Link), &af_packet.AfPacketCreateV3{
		Mode:            af_packet.AF_PACKET_API_MODE_ETHERNET,
		UseRandomHwAddr: v.MAC.IsZero(), HwAddr: [6]byte(v.MAC), HostIfName: v.AFPacket.Link,
		RxFramesPerBlock: uint32(rings.RxFrames), TxFramesPerBlock: uint32(rings.TxFrames),
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
