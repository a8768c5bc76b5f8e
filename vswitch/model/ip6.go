package model

import (
	"crypto/rand"
	"net/netip"

	"github.com/weftnet/weft/vswitch/frame"
)

// EnableIP6 asks for IPv6 on an interface, which gets a link-local address. Where it is on already the answer
// is ValueExist and the asking counts all the same, as in VPP.
func (m *Model) EnableIP6(index uint32) error {
	defer m.change()()
	i, err := m.interfaceLocked(index)
	if err != nil {
		return err
	}
	on := i.linkLocal.IsValid()
	m.enableIP6Locked(i, netip.Addr{})
	m.setEngineLocked(i)
	if on {
		return ValueExist
	}
	return nil
}

// DisableIP6 takes back one asking.
func (m *Model) DisableIP6(index uint32) error {
	defer m.change()()
	i, err := m.interfaceLocked(index)
	if err != nil {
		return err
	}
	if !i.linkLocal.IsValid() {
		return IP6NotEnabled
	}
	m.disableIP6Locked(i)
	m.setEngineLocked(i)
	return nil
}

// SetLinkLocal sets an interface's link-local address, and IPv6 on where it is off.
func (m *Model) SetLinkLocal(index uint32, a netip.Addr) error {
	defer m.change()()
	i, err := m.interfaceLocked(index)
	if err != nil {
		return err
	}
	return m.setLinkLocalLocked(i, a)
}

// LinkLocal is an interface's link-local address.
func (m *Model) LinkLocal(index uint32) (netip.Addr, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i, err := m.interfaceLocked(index)
	if err != nil {
		return netip.Addr{}, err
	}
	if !i.linkLocal.IsValid() {
		return netip.Addr{}, IP6NotEnabled
	}
	return i.linkLocal, nil
}

func (m *Model) setLinkLocalLocked(i *iface, a netip.Addr) error {
	if !isLinkLocal(a) {
		return InvalidValue
	}
	if i.linkLocal.IsValid() {
		i.linkLocal = a
	} else {
		m.enableIP6Locked(i, a)
	}
	m.setEngineLocked(i)
	return nil
}

// enableIP6Locked counts one asking; the first sets the link-local address, made from the MAC if a is invalid.
func (m *Model) enableIP6Locked(i *iface, a netip.Addr) {
	i.ip6Locks++
	switch {
	case i.linkLocal.IsValid():
	case a.IsValid():
		i.linkLocal = a
	case i.ethernet:
		i.linkLocal = linkLocalOf(i.MAC)
	default:
		mac := frame.MAC{}
		_, _ = rand.Read(mac[:]) // never fails
		i.linkLocal = linkLocalOf(mac)
	}
}

func (m *Model) disableIP6Locked(i *iface) {
	if i.ip6Locks == 0 {
		return
	}
	if i.ip6Locks--; i.ip6Locks == 0 {
		i.linkLocal = netip.Addr{}
	}
}

// linkLocalOf is RFC 4291's address with the modified EUI-64 of a MAC.
func linkLocalOf(mac frame.MAC) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 8: mac[0] ^ 2, 9: mac[1], 10: mac[2], 11: 0xff, 12: 0xfe,
		13: mac[3], 14: mac[4], 15: mac[5]})
}
