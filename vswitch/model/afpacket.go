package model

import (
	"errors"
	"log/slog"

	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/port"
)

// AFPacketFlags are the flags of af_packet_create_v3. Unknown flags are ignored, as in VPP.
type AFPacketFlags uint32

// The supported flags. The flag for TPACKET_V2 has no effect because there is no ring.
const (
	AFPacketQdiscBypass AFPacketFlags = 1
	AFPacketOffload     AFPacketFlags = 2
)

// AFPacket holds the fields of af_packet_create_v3.
type AFPacket struct {
	HostName string     // name of a link in the dataplane's network namespace
	MAC      *frame.MAC // MAC of the interface, not of the link; nil: random
	Mode     uint32     // VPP's: 1 Ethernet, 2 IP
	Flags    AFPacketFlags
	Queues   int // larger number of both directions; one socket serves all queues
}

// AFPacketDetails holds the fields of af_packet_details.
type AFPacketDetails struct {
	Index    uint32
	HostName string
}

const (
	modeEthernet = 1
	modeIP       = 2
)

// AFPackets are the interfaces on links of the host.
type AFPackets struct {
	*barrier
	log        *slog.Logger
	interfaces *Interfaces
}

// Add sets up a link, creates the interface host-<link> on it and returns the interface's index. If the link
// has an interface, it returns the index of that with the error IfAlreadyExists.
func (as *AFPackets) Add(p AFPacket) (uint32, error) {
	defer as.change()()
	if i := as.findLocked(p.HostName); i != nil {
		return i.Index, IfAlreadyExists
	}
	switch {
	case p.Mode == modeIP || p.Queues > maxQueues:
		return NoIndex, Unsupported
	case p.Mode != modeEthernet:
		return NoIndex, InvalidValue
	case p.HostName == "" || len(p.HostName) > maxHostName:
		return NoIndex, InvalidInterface
	}
	p.MAC = orRandomMAC(p.MAC)
	index, err := as.interfaces.freeIndexLocked()
	if err != nil {
		return NoIndex, err
	}
	if _, err := as.engine.OpenAFPacket(index, p.config()); err != nil {
		as.log.Warn("af_packet interface not created", "interface", p.HostName, "err", err)
		return NoIndex, afPacketRetval(err)
	}
	i := newEthernet(Interface{
		Index:   index,
		Name:    "host-" + p.HostName,
		DevType: "af-packet",
		MAC:     *p.MAC,
		LinkUp:  true,
	})
	i.kind = &p
	return as.interfaces.addLocked(i)
}

// config returns the configuration for the engine.
func (p *AFPacket) config() port.AFPacketConfig {
	return port.AFPacketConfig{Name: p.HostName, Offload: p.Flags&AFPacketOffload != 0,
		QdiscBypass: p.Flags&AFPacketQdiscBypass != 0, SetUp: true}
}

// Delete deletes the interface of a link. As in VPP the error is SyscallError1 if the link has no interface.
func (as *AFPackets) Delete(hostName string) error {
	defer as.change()()
	i := as.findLocked(hostName)
	if i == nil {
		return SyscallError1
	}
	as.interfaces.deleteLocked(i)
	return nil
}

// List lists the interfaces of links by index.
func (as *AFPackets) List() []AFPacketDetails {
	return listKind(as.interfaces, NoIndex, func(i *iface, p *AFPacket) AFPacketDetails {
		return AFPacketDetails{Index: i.Index, HostName: p.HostName}
	})
}

func (as *AFPackets) findLocked(hostName string) *iface {
	for _, i := range as.interfaces.byIndex {
		if p := kindOf[AFPacket](i); p != nil && p.HostName == hostName {
			return i
		}
	}
	return nil
}

// afPacketRetval returns VPP's retval for an error of the kernel.
func afPacketRetval(err error) Retval {
	if errors.Is(err, port.ErrNoLink) {
		return InvalidInterface
	}
	return SyscallError1
}
