package model

import (
	"net/netip"
	"slices"

	"github.com/weftnet/weft/vswitch/forward"
)

// AddAddress gives an interface an address. An IPv6 link-local one must be a /128 and becomes
// the interface's link-local address.
func (m *Model) AddAddress(index uint32, p netip.Prefix) error {
	defer m.change()()
	i, err := m.addressableLocked(index, p)
	if err != nil {
		return err
	}
	if isLinkLocal(p.Addr()) {
		return m.setLinkLocalLocked(i, p.Addr())
	}
	if i.donor != NoIndex {
		return UnexpectedInterfaceState
	}
	if m.conflictsLocked(i, p) {
		if p.Addr().Is4() {
			return AddressInUse
		}
		return DuplicateIfAddress
	}
	i.addresses = append(i.addresses, p)
	if p.Addr().Is6() {
		m.enableIP6Locked(i, netip.Addr{})
	}
	m.showLocked(i)
	m.connectLocked(i)
	return nil
}

// DeleteAddress takes an address from an interface. A link-local address cannot be taken.
func (m *Model) DeleteAddress(index uint32, p netip.Prefix) error {
	defer m.change()()
	i, err := m.addressableLocked(index, p)
	if err != nil {
		return err
	}
	if isLinkLocal(p.Addr()) && i.linkLocal == p.Addr() {
		return AddressNotDeletable
	}
	if !slices.Contains(i.addresses, p) {
		return AddressNotFoundForInterface
	}
	m.deleteAddressLocked(i, p)
	return nil
}

// DeleteAddresses takes all addresses from an interface.
func (m *Model) DeleteAddresses(index uint32) error {
	defer m.change()()
	i, err := m.interfaceLocked(index)
	if err != nil {
		return err
	}
	for _, p := range slices.Clone(i.addresses) {
		m.deleteAddressLocked(i, p)
	}
	return nil
}

// Addresses lists an interface's own addresses of a family in the order they were added.
func (m *Model) Addresses(index uint32, f forward.Family) ([]netip.Prefix, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i, err := m.interfaceLocked(index)
	if err != nil {
		return nil, err
	}
	var list []netip.Prefix
	for _, p := range i.addresses {
		if forward.FamilyOf(p.Addr()) == f {
			list = append(list, p)
		}
	}
	return list, nil
}

// addressableLocked finds an interface that can have the address p.
func (m *Model) addressableLocked(index uint32, p netip.Prefix) (*iface, error) {
	i, err := m.interfaceLocked(index)
	switch {
	case err != nil:
		return nil, err
	case index == 0:
		return nil, Unsupported
	case !p.IsValid() || p.Bits() == 0 || isLinkLocal(p.Addr()) && p.Bits() != 128:
		return nil, AddressLengthMismatch
	}
	return i, nil
}

// isLinkLocal is VPP's test: IPv4's link-local addresses are nothing special.
func isLinkLocal(a netip.Addr) bool { return a.Is6() && a.IsLinkLocalUnicast() }

// conflictsLocked says whether the VRF has an address whose prefix overlaps p, other than
// further addresses of the same prefix on the same interface.
func (m *Model) conflictsLocked(i *iface, p netip.Prefix) bool {
	table := i.table(forward.FamilyOf(p.Addr()))
	for _, other := range m.interfaces {
		if other.table(table.Family) != table {
			continue
		}
		for _, q := range other.addresses {
			sibling := other == i && q.Bits() == p.Bits() && q.Addr() != p.Addr()
			if !sibling && q.Overlaps(p) {
				return true
			}
		}
	}
	return false
}

func (m *Model) deleteAddressLocked(i *iface, p netip.Prefix) {
	i.addresses = slices.DeleteFunc(i.addresses, func(q netip.Prefix) bool { return q == p })
	m.forgetLearnedLocked(i, p.Contains)
	if p.Addr().Is6() {
		m.disableIP6Locked(i)
	}
	m.showLocked(i)
	m.connectLocked(i)
}

// addressesLocked are the addresses that an interface uses: its own, or its donor's.
func (m *Model) addressesLocked(i *iface) []netip.Prefix {
	if donor := m.interfaces[i.donor]; donor != nil {
		return donor.addresses
	}
	return i.addresses
}
