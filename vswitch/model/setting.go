package model

import (
	"strings"

	"github.com/weftnet/weft/vswitch/frame"
)

// SetAdminUp sets an interface up or down. The links of taps and loopbacks follow, as in VPP.
func (m *Model) SetAdminUp(index uint32, up bool) error {
	defer m.change()()
	i, err := m.interfaceLocked(index)
	if err != nil {
		return err
	}
	if i.AdminUp == up {
		return nil
	}
	hasLink := i.ethernet || i.hasPort()
	linkCame := up && hasLink && !i.LinkUp
	i.AdminUp = up
	if hasLink {
		i.LinkUp = up && !i.portFailed
	}
	if !up {
		m.forgetLearnedLocked(i, everything)
	}
	m.setEngineLocked(i)
	m.connectLocked(i)
	m.reviewLocked(i)
	if !up {
		m.flushLocked(i.bridge, i)
	}
	m.notify(InterfaceEvent{Index: index, AdminUp: up, LinkUp: linkCame && i.LinkUp})
	return nil
}

// SetMTU sets the MTUs by protocol, in the order of Interface.MTU. IPv4 and IPv6 must come out equal:
// the packet path knows one for both.
func (m *Model) SetMTU(index uint32, mtu [4]uint32) error {
	defer m.change()()
	i, err := m.interfaceLocked(index)
	if err != nil {
		return err
	}
	if protocolMTU(mtu, 1) != protocolMTU(mtu, 2) {
		return Unsupported
	}
	i.MTU = mtu
	m.setEngineLocked(i)
	return nil
}

// protocolMTU is the MTU for one protocol: its own where it has one below that of layer 3.
// The kernel takes no frame longer than 64 KiB.
func protocolMTU(mtu [4]uint32, protocol int) uint32 {
	n := mtu[0]
	if own := mtu[protocol]; own != 0 && own < n {
		n = own
	}
	return min(n, 1<<16-1)
}

// SetLinkMTU sets the MTU of the device, and that of layer 3 with it. A loopback has no device to set it on.
func (m *Model) SetLinkMTU(index uint32, mtu int) error {
	defer m.change()()
	i, err := m.interfaceLocked(index)
	switch {
	case err != nil:
		return err
	case !i.ethernet:
		return FeatureDisabled
	case i.LinkMTU == mtu:
		return nil
	case !i.hasPort() && i.vxlan == nil:
		return Unsupported
	}
	i.LinkMTU, i.MTU[0] = mtu, uint32(mtu)
	m.setEngineLocked(i)
	return nil
}

// SetMAC sets an Ethernet interface's address. Its IPv6 link-local address stays, as in VPP.
func (m *Model) SetMAC(index uint32, mac frame.MAC) error {
	defer m.change()()
	i, err := m.interfaceLocked(index)
	if err != nil {
		return err
	}
	if !i.ethernet {
		return Unimplemented
	}
	old := i.MAC
	i.MAC = mac
	m.setEngineLocked(i)
	m.macChangedLocked(i, old)
	return nil
}

// MAC is an interface's address, zero for one that has none.
func (m *Model) MAC(index uint32) (frame.MAC, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i, err := m.interfaceLocked(index)
	if err != nil {
		return frame.MAC{}, err
	}
	return i.MAC, nil
}

// SetTag sets an interface's tag, cut to 63 bytes. An empty one is refused.
func (m *Model) SetTag(index uint32, tag string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	i, err := m.interfaceLocked(index)
	if err != nil {
		return err
	}
	if tag = cutTag(tag); tag == "" {
		return InvalidValue
	}
	i.Tag = tag
	return nil
}

// ClearTag removes an interface's tag.
func (m *Model) ClearTag(index uint32) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	i, err := m.interfaceLocked(index)
	if err != nil {
		return err
	}
	i.Tag = ""
	return nil
}

// cutTag is what of a tag fits into a details message.
func cutTag(tag string) string {
	tag, _, _ = strings.Cut(tag, "\x00")
	return tag[:min(len(tag), maxTag)]
}

// SetGSO switches the segmentation of long packets at an output on or off. There is nothing to switch: what a port does not
// take whole is always segmented here.
func (m *Model) SetGSO(index uint32) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, err := m.interfaceLocked(index)
	return err
}
