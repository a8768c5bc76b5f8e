package model

import (
	"crypto/rand"
	"net/netip"
	"slices"

	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/frame"
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

// Unnumbered is an interface that uses another's addresses.
type Unnumbered struct {
	Index uint32
	Donor uint32
}

// SetUnnumbered lets an interface use the donor's addresses. Both must be in the same VRFs. VPP would mix up
// the addresses of an interface that has some of its own, and those of a chain; here both are refused.
func (m *Model) SetUnnumbered(index, donor uint32) error {
	defer m.change()()
	i, err := m.interfaceLocked(index)
	if err != nil {
		return err
	}
	d, ok := m.interfaces[donor]
	if !ok {
		return InvalidSwIfIndex2
	}
	if d.table4 != i.table4 || d.table6 != i.table6 || i == d || d.donor != NoIndex || len(i.addresses) > 0 || m.donatesLocked(i) {
		return UnexpectedInterfaceState
	}
	i.donor = donor
	m.setEngineLocked(i)
	m.refineLocked(i)
	return nil
}

// ClearUnnumbered ends that; an interface that is not unnumbered is no error.
func (m *Model) ClearUnnumbered(index uint32) error {
	defer m.change()()
	i, err := m.interfaceLocked(index)
	if err != nil {
		return err
	}
	i.donor = NoIndex
	m.setEngineLocked(i)
	m.refineLocked(i)
	return nil
}

// Unnumbered lists the interface of that index if it is unnumbered, or all that are for NoIndex.
func (m *Model) Unnumbered(index uint32) []Unnumbered {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []Unnumbered
	for _, n := range m.indexesLocked() {
		if i := m.interfaces[n]; i.donor != NoIndex && (index == NoIndex || index == n) {
			list = append(list, Unnumbered{Index: n, Donor: i.donor})
		}
	}
	return list
}

func (m *Model) donatesLocked(i *iface) bool {
	for _, other := range m.interfaces {
		if other.donor == i.Index {
			return true
		}
	}
	return false
}

// connectLocked brings the routes that an interface's addresses make in line with its
// addresses and state: as in VPP they are there while it is admin up.
func (m *Model) connectLocked(i *iface) {
	want := map[routeKey]fibRoute{}
	if i.AdminUp {
		want = i.connectedRoutes()
	}
	for k := range i.connected {
		if _, ok := want[k]; !ok {
			delete(i.connected, k)
			m.dropLocked(k, SourceInterface)
		}
	}
	for k, r := range want {
		if old, ok := i.connected[k]; !ok || !old.equal(r) {
			i.connected[k] = r
			m.setLocked(k, SourceInterface, r)
		}
	}
}

// connectedRoutes are a route to each prefix, what is special in it, and last, because they win, the addresses.
func (i *iface) connectedRoutes() map[routeKey]fibRoute {
	routes := map[routeKey]fibRoute{}
	for _, p := range i.addresses {
		table := i.table(forward.FamilyOf(p.Addr()))
		if !p.IsSingleIP() {
			routes[routeKey{table, p.Masked()}] = fibRoute{paths: []Path{{Interface: i.Index, Weight: 1}}, attached: true, written: i.writtenPrefix(p)}
		}
		if p.Addr().Is4() {
			i.addEnds(routes, table, p)
		}
	}
	for _, p := range i.addresses {
		host := netip.PrefixFrom(p.Addr(), p.Addr().BitLen())
		local := Path{Kind: PathLocal, Interface: i.Index, NextHop: p.Addr(), Weight: 1}
		routes[routeKey{i.table(forward.FamilyOf(p.Addr())), host}] = fibRoute{paths: []Path{local}}
	}
	return routes
}

// writtenPrefix is the prefix of a connected route as VPP writes it: with the address's host bits in IPv4, without in IPv6.
func (i *iface) writtenPrefix(address netip.Prefix) netip.Prefix {
	if address.Addr().Is6() {
		return address.Masked()
	}
	for _, p := range i.addresses {
		if p.Masked() == address.Masked() {
			return p // the first of several
		}
	}
	return address
}

// addEnds adds the first and the last address of an IPv4 prefix, where packets are dropped;
// of a /31 the other address, which is on the link.
func (i *iface) addEnds(routes map[routeKey]fibRoute, table forward.TableKey, p netip.Prefix) {
	first, last := ends(p)
	switch {
	case p.Bits() <= 30:
		for _, a := range []netip.Addr{first, last} {
			routes[routeKey{table, netip.PrefixFrom(a, 32)}] = fibRoute{paths: []Path{dropPath}}
		}
	case p.Bits() == 31:
		other := first
		if p.Addr() == first {
			other = last
		}
		routes[routeKey{table, netip.PrefixFrom(other, 32)}] = fibRoute{
			paths: []Path{{Interface: i.Index, NextHop: other, Weight: 1}}, attached: true}
	}
}

// ends are the first and the last address of an IPv4 prefix.
func ends(p netip.Prefix) (first, last netip.Addr) {
	first = p.Masked().Addr()
	b := first.As4()
	for bit := p.Bits(); bit < 32; bit++ {
		b[bit/8] |= 1 << (7 - bit%8)
	}
	return first, netip.AddrFrom4(b)
}
