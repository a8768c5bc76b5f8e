package model

import (
	"errors"

	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/port"
)

// AFPacketFlags are af_packet_create_v3's. As in VPP others mean nothing.
type AFPacketFlags uint32

// The flags. That for TPACKET_V2 changes nothing here: there is no ring.
const (
	AFPacketQdiscBypass AFPacketFlags = 1
	AFPacketOffload     AFPacketFlags = 2
)

// AFPacket says which link of the machine to attach to, in af_packet_create_v3's words.
type AFPacket struct {
	HostName string     // of a link in the dataplane's own namespace
	MAC      *frame.MAC // of the interface, not of the link; nil: a random one
	Mode     uint32     // VPP's: 1 Ethernet, 2 IP
	Flags    AFPacketFlags
	Queues   int // the larger of both directions, which the link has for others: here one socket serves all of them
}

// AFPacketDetails is what af_packet_details tells.
type AFPacketDetails struct {
	Index    uint32
	HostName string
}

const (
	modeEthernet = 1
	modeIP       = 2
)

// AddAFPacket attaches to a link, sets it up, makes host-<its name> and returns that interface's index. For a link that is
// attached to already the index is its interface's, beside the error IfAlreadyExists.
func (m *Model) AddAFPacket(p AFPacket) (uint32, error) {
	defer m.change()()
	if i := m.linkedLocked(p.HostName); i != nil {
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
	if p.MAC == nil {
		mac := randomMAC()
		p.MAC = &mac
	}
	index, err := m.freeIndexLocked()
	if err != nil {
		return NoIndex, err
	}
	config := port.AFPacketConfig{Name: p.HostName, Offload: p.Flags&AFPacketOffload != 0,
		QdiscBypass: p.Flags&AFPacketQdiscBypass != 0, SetUp: true}
	if _, err := m.engine.OpenAFPacket(index, config); err != nil {
		m.log.Warn("link not attached", "interface", p.HostName, "err", err)
		return NoIndex, afPacketRetval(err)
	}
	i := newEthernet(Interface{Index: index, Name: "host-" + p.HostName, DevType: "af-packet", MAC: *p.MAC, LinkUp: true})
	i.afPacket = &p
	if err := m.addLocked(i); err != nil {
		return NoIndex, errors.Join(err, m.engine.ClosePort(index))
	}
	return index, nil
}

// DeleteAFPacket lets a link go, which stays; one that is not attached is SyscallError1, as in VPP.
func (m *Model) DeleteAFPacket(hostName string) error {
	defer m.change()()
	i := m.linkedLocked(hostName)
	if i == nil {
		return SyscallError1
	}
	if err := m.engine.ClosePort(i.Index); err != nil && !errors.Is(err, forward.ErrNoPort) {
		m.log.Error("port not closed", "interface", i.Name, "err", err)
	}
	m.removeLocked(i)
	return nil
}

// AFPackets lists the links that are attached, by index.
func (m *Model) AFPackets() []AFPacketDetails {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []AFPacketDetails
	for _, n := range m.indexesLocked() {
		if p := m.interfaces[n].afPacket; p != nil {
			list = append(list, AFPacketDetails{Index: n, HostName: p.HostName})
		}
	}
	return list
}

func (m *Model) linkedLocked(hostName string) *iface {
	for _, i := range m.interfaces {
		if i.afPacket != nil && i.afPacket.HostName == hostName {
			return i
		}
	}
	return nil
}

// afPacketRetval is what VPP answers when the kernel refuses.
func afPacketRetval(err error) Retval {
	if errors.Is(err, port.ErrNoLink) {
		return InvalidInterface
	}
	return SyscallError1
}
