package model

import (
	"crypto/rand"
	"net/netip"
	"slices"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/frame"
)

// AddAddress adds an address to an interface. An IPv6 link-local address must be a /128 and becomes the link-local
// address of the interface.
func (m *Model) AddAddress(index uint32, p netip.Prefix) error {
	return m.Interfaces.with(index, func(i *iface) error {
		if err := i.checkAddress(p); err != nil {
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
			i.enableIP6(netip.Addr{})
		}
		m.syncWithUnnumberedLocked(i)
		m.fib.updateConnected(i)
		return nil
	})
}

// DeleteAddress deletes an address of an interface. A link-local address cannot be deleted.
func (m *Model) DeleteAddress(index uint32, p netip.Prefix) error {
	return m.Interfaces.with(index, func(i *iface) error {
		if err := i.checkAddress(p); err != nil {
			return err
		}
		if isLinkLocal(p.Addr()) && i.ip6.linkLocal == p.Addr() {
			return AddressNotDeletable
		}
		if !slices.Contains(i.addresses, p) {
			return AddressNotFoundForInterface
		}
		m.deleteAddressLocked(i, p)
		return nil
	})
}

// DeleteAddresses deletes all addresses of an interface.
func (m *Model) DeleteAddresses(index uint32) error {
	return m.Interfaces.with(index, func(i *iface) error {
		for _, p := range slices.Clone(i.addresses) {
			m.deleteAddressLocked(i, p)
		}
		return nil
	})
}

// Addresses lists an interface's own addresses of a family in the order of AddAddress.
func (m *Model) Addresses(index uint32, f forward.Family) (list []netip.Prefix, err error) {
	err = m.Interfaces.with(index, func(i *iface) error {
		list = slices.DeleteFunc(slices.Clone(i.addresses), func(p netip.Prefix) bool {
			return forward.FamilyOf(p.Addr()) != f
		})
		return nil
	})
	return list, err
}

// checkAddress validates an address for the interface.
func (i *iface) checkAddress(p netip.Prefix) error {
	if i.Index == 0 {
		return Unsupported
	}
	if !p.IsValid() || p.Bits() == 0 || isLinkLocal(p.Addr()) && p.Bits() != 128 {
		return AddressLengthMismatch
	}
	return nil
}

// isLinkLocal is VPP's test, in which link-local addresses of IPv4 are not special.
func isLinkLocal(a netip.Addr) bool { return a.Is6() && a.IsLinkLocalUnicast() }

// conflictsLocked reports whether the VRF has an address with a prefix that overlaps p. Several addresses of one prefix
// on the same interface do not conflict.
func (m *Model) conflictsLocked(i *iface, p netip.Prefix) bool {
	table := i.table(forward.FamilyOf(p.Addr()))
	for _, other := range m.Interfaces.byIndex {
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
	m.Neighbours.deleteLearnedLocked(i, p.Contains)
	if p.Addr().Is6() {
		i.ip6.disable()
	}
	m.syncWithUnnumberedLocked(i)
	m.fib.updateConnected(i)
}

// addressesLocked returns the addresses that an interface uses: its own or its donor's.
func (is *Interfaces) addressesLocked(i *iface) []netip.Prefix {
	if donor := is.byIndex[i.donor]; donor != nil {
		return donor.addresses
	}
	return i.addresses
}

// ip6 is the IPv6 state of an interface.
type ip6 struct {
	linkLocal netip.Addr // valid if IPv6 is enabled
	locks     int        // number of IPv6 addresses and calls of EnableIP6
}

func (s *ip6) on() bool { return s.linkLocal.IsValid() }

// enableIP6 adds a lock. The first lock sets the link-local address, which depends on the MAC address if a is invalid.
func (i *iface) enableIP6(a netip.Addr) {
	i.ip6.locks++
	if i.ip6.on() {
		return
	}
	mac := i.MAC
	if !i.ethernet {
		_, _ = rand.Read(mac[:]) // never fails
	}
	if !a.IsValid() {
		a = linkLocalOf(mac)
	}
	i.ip6.linkLocal = a
}

// disable removes a lock. The last one disables IPv6.
func (s *ip6) disable() {
	if s.locks = max(s.locks-1, 0); s.locks == 0 {
		s.linkLocal = netip.Addr{}
	}
}

// EnableIP6 adds an IPv6 lock to an interface. If IPv6 is enabled it also adds the lock but returns ValueExist, as VPP
// does.
func (m *Model) EnableIP6(index uint32) error {
	return m.Interfaces.with(index, func(i *iface) error {
		on := i.ip6.on()
		i.enableIP6(netip.Addr{})
		if on {
			return ValueExist
		}
		m.Interfaces.syncLocked(i)
		return nil
	})
}

// DisableIP6 removes an IPv6 lock.
func (m *Model) DisableIP6(index uint32) error {
	return m.Interfaces.with(index, func(i *iface) error {
		if !i.ip6.on() {
			return IP6NotEnabled
		}
		i.ip6.disable()
		m.Interfaces.syncLocked(i)
		return nil
	})
}

// SetLinkLocal sets the link-local address of an interface, and enables IPv6 if it is disabled.
func (m *Model) SetLinkLocal(index uint32, a netip.Addr) error {
	return m.Interfaces.with(index, func(i *iface) error { return m.setLinkLocalLocked(i, a) })
}

// LinkLocal returns the link-local address of an interface.
func (m *Model) LinkLocal(index uint32) (a netip.Addr, err error) {
	err = m.Interfaces.with(index, func(i *iface) error {
		if a = i.ip6.linkLocal; !a.IsValid() {
			return IP6NotEnabled
		}
		return nil
	})
	return a, err
}

func (m *Model) setLinkLocalLocked(i *iface, a netip.Addr) error {
	if !isLinkLocal(a) {
		return InvalidValue
	}
	if i.ip6.on() {
		i.ip6.linkLocal = a
	} else {
		i.enableIP6(a)
	}
	m.Interfaces.syncLocked(i)
	return nil
}

// linkLocalOf returns the link-local address with the modified EUI-64 of a MAC address (RFC 4291).
func linkLocalOf(mac frame.MAC) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 8: mac[0] ^ 2, 9: mac[1], 10: mac[2], 11: 0xff, 12: 0xfe,
		13: mac[3], 14: mac[4], 15: mac[5]})
}

// syncWithUnnumberedLocked writes the interface, and the unnumbered interfaces that use its addresses, to the engine.
func (m *Model) syncWithUnnumberedLocked(i *iface) {
	m.Interfaces.syncLocked(i)
	for _, other := range m.Interfaces.byIndex {
		if other.donor == i.Index && other != i {
			m.Interfaces.syncLocked(other)
		}
	}
}

// Unnumbered is an interface that uses the addresses of a donor.
type Unnumbered struct{ Index, Donor uint32 }

// SetUnnumbered makes an interface use the donor's addresses. Both must be in the same VRFs. Unlike VPP it rejects an
// interface with own addresses and a donor that is unnumbered itself: VPP would mix up their addresses.
func (m *Model) SetUnnumbered(index, donor uint32) error {
	return m.Interfaces.with(index, func(i *iface) error {
		d, ok := m.Interfaces.byIndex[donor]
		if !ok {
			return InvalidSwIfIndex2
		}
		sameVRFs := d.table(forward.IP4) == i.table(forward.IP4) && d.table(forward.IP6) == i.table(forward.IP6)
		if !sameVRFs || i == d || d.donor != NoIndex || len(i.addresses) > 0 || m.isDonorLocked(i) {
			return UnexpectedInterfaceState
		}
		m.setDonorLocked(i, donor)
		return nil
	})
}

// ClearUnnumbered removes the donor of an interface. It succeeds if the interface has no donor.
func (m *Model) ClearUnnumbered(index uint32) error {
	return m.Interfaces.with(index, func(i *iface) error { m.setDonorLocked(i, NoIndex); return nil })
}

func (m *Model) setDonorLocked(i *iface, donor uint32) {
	i.donor = donor
	m.Interfaces.syncLocked(i)
	m.Neighbours.updateRoutesLocked(i)
}

// Unnumbered lists the interface of the given index if it is unnumbered, or all unnumbered interfaces for NoIndex.
func (m *Model) Unnumbered(index uint32) []Unnumbered {
	return listInterfaces(m.Interfaces, index, func(i *iface) (Unnumbered, bool) {
		return Unnumbered{i.Index, i.donor}, i.donor != NoIndex
	})
}

func (m *Model) isDonorLocked(i *iface) bool {
	for _, other := range m.Interfaces.byIndex {
		if other.donor == i.Index {
			return true
		}
	}
	return false
}

// updateConnected updates the connected routes of an interface. As in VPP they exist while it is admin up.
func (fb *fib) updateConnected(i *iface) {
	want := map[routeKey]fibRoute{}
	if i.AdminUp {
		want = i.connectedRoutes()
	}
	for k := range i.connected {
		if _, ok := want[k]; !ok {
			delete(i.connected, k)
			fb.delete(k, SourceInterface)
		}
	}
	for k, r := range want {
		if old, ok := i.connected[k]; !ok || !old.equal(r) {
			i.connected[k] = r
			fb.set(k, SourceInterface, r)
		}
	}
}

// connectedRoutes returns the routes of the addresses: the prefix, the special addresses of the prefix, and the address
// itself, which replaces the others.
func (i *iface) connectedRoutes() map[routeKey]fibRoute {
	routes := map[routeKey]fibRoute{}
	for _, p := range i.addresses {
		table := i.table(forward.FamilyOf(p.Addr()))
		if !p.IsSingleIP() {
			routes[routeKey{table, p.Masked()}] = fibRoute{
				paths:    []Path{{Interface: i.Index, Weight: 1}},
				attached: true,
				written:  i.writtenPrefix(p),
			}
		}
		if p.Addr().Is4() {
			i.addEnds(routes, table, p)
		}
	}
	for _, p := range i.addresses {
		host := netaddr.Single(p.Addr())
		local := Path{Kind: PathLocal, Interface: i.Index, NextHop: p.Addr(), Weight: 1}
		routes[routeKey{i.table(forward.FamilyOf(p.Addr())), host}] = fibRoute{paths: []Path{local}}
	}
	return routes
}

// writtenPrefix returns the prefix of a connected route in dumps. As in VPP it has host bits for IPv4, of the first
// address of the prefix.
func (i *iface) writtenPrefix(address netip.Prefix) netip.Prefix {
	if address.Addr().Is6() {
		return address.Masked()
	}
	for _, p := range i.addresses {
		if p.Masked() == address.Masked() {
			return p
		}
	}
	return address
}

// addEnds adds drop routes for the first and the last address of an IPv4 prefix. For a /31 it adds the peer's address.
func (i *iface) addEnds(routes map[routeKey]fibRoute, table forward.TableKey, p netip.Prefix) {
	first := p.Masked().Addr()
	last := netaddr.Last(p)
	switch {
	case p.Bits() <= 30:
		for _, a := range []netip.Addr{first, last} {
			routes[routeKey{table, netaddr.Single(a)}] = fibRoute{paths: []Path{dropPath}}
		}
	case p.Bits() == 31:
		other := first
		if p.Addr() == first {
			other = last
		}
		routes[routeKey{table, netaddr.Single(other)}] = fibRoute{
			paths: []Path{{Interface: i.Index, NextHop: other, Weight: 1}}, attached: true}
	}
}
