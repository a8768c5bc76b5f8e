package model

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/vswitch/forward"
)

// Addresses are the addresses of interfaces and their connected routes.
type Addresses struct {
	*barrier
	interfaces *Interfaces
	neighbours *Neighbours
	ip6        *IP6
	fib        *fib
}

// Add adds an address to an interface. An IPv6 link-local address must be a /128 and becomes the link-local
// address of the interface.
func (as *Addresses) Add(index uint32, p netip.Prefix) error {
	return as.interfaces.with(index, func(i *iface) error {
		if err := i.checkAddress(p); err != nil {
			return err
		}
		if isLinkLocal(p.Addr()) {
			return as.ip6.setLinkLocalLocked(i, p.Addr())
		}
		if i.donor != NoIndex {
			return UnexpectedInterfaceState
		}
		if as.conflictsLocked(i, p) {
			if p.Addr().Is4() {
				return AddressInUse
			}
			return DuplicateIfAddress
		}
		i.addresses = append(i.addresses, p)
		if p.Addr().Is6() {
			i.enableIP6(netip.Addr{})
		}
		as.syncLocked(i)
		as.updateConnectedLocked(i)
		return nil
	})
}

// Delete deletes an address of an interface. A link-local address cannot be deleted.
func (as *Addresses) Delete(index uint32, p netip.Prefix) error {
	return as.interfaces.with(index, func(i *iface) error {
		if err := i.checkAddress(p); err != nil {
			return err
		}
		if isLinkLocal(p.Addr()) && i.ip6.linkLocal == p.Addr() {
			return AddressNotDeletable
		}
		if !slices.Contains(i.addresses, p) {
			return AddressNotFoundForInterface
		}
		as.deleteLocked(i, p)
		return nil
	})
}

// DeleteAll deletes all addresses of an interface.
func (as *Addresses) DeleteAll(index uint32) error {
	return as.interfaces.with(index, func(i *iface) error {
		for _, p := range slices.Clone(i.addresses) {
			as.deleteLocked(i, p)
		}
		return nil
	})
}

// List lists an interface's own addresses of a family in the order of Add.
func (as *Addresses) List(index uint32, f forward.Family) (list []netip.Prefix, err error) {
	err = as.interfaces.with(index, func(i *iface) error {
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
func (as *Addresses) conflictsLocked(i *iface, p netip.Prefix) bool {
	table := i.table(forward.FamilyOf(p.Addr()))
	for _, other := range as.interfaces.byIndex {
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

func (as *Addresses) deleteLocked(i *iface, p netip.Prefix) {
	i.addresses = slices.DeleteFunc(i.addresses, func(q netip.Prefix) bool { return q == p })
	as.neighbours.deleteLearnedLocked(i, p.Contains)
	if p.Addr().Is6() {
		i.ip6.disable()
	}
	as.syncLocked(i)
	as.updateConnectedLocked(i)
}

// addressesLocked returns the addresses that an interface uses: its own or its donor's.
func (is *Interfaces) addressesLocked(i *iface) []netip.Prefix {
	if donor := is.byIndex[i.donor]; donor != nil {
		return donor.addresses
	}
	return i.addresses
}

// Unnumbered is an interface that uses the addresses of a donor.
type Unnumbered struct{ Index, Donor uint32 }

// SetUnnumbered makes an interface use the donor's addresses. Both must be in the same VRFs. Unlike VPP it rejects an
// interface with own addresses and a donor that is unnumbered itself: VPP would mix up their addresses.
func (as *Addresses) SetUnnumbered(index, donor uint32) error {
	return as.interfaces.with(index, func(i *iface) error {
		d, ok := as.interfaces.byIndex[donor]
		if !ok {
			return InvalidSwIfIndex2
		}
		sameVRFs := d.table(forward.IP4) == i.table(forward.IP4) && d.table(forward.IP6) == i.table(forward.IP6)
		if !sameVRFs || i == d || d.donor != NoIndex || len(i.addresses) > 0 || as.isDonorLocked(i) {
			return UnexpectedInterfaceState
		}
		as.setDonorLocked(i, donor)
		return nil
	})
}

// ClearUnnumbered removes the donor of an interface. It succeeds if the interface has no donor.
func (as *Addresses) ClearUnnumbered(index uint32) error {
	return as.interfaces.with(index, func(i *iface) error { as.setDonorLocked(i, NoIndex); return nil })
}

func (as *Addresses) setDonorLocked(i *iface, donor uint32) {
	i.donor = donor
	as.interfaces.syncLocked(i)
	as.neighbours.updateRoutesLocked(i)
}

// Unnumbered lists the interface of the given index if it is unnumbered, or all unnumbered interfaces for NoIndex.
func (as *Addresses) Unnumbered(index uint32) []Unnumbered {
	return listInterfaces(as.interfaces, index, func(i *iface) (Unnumbered, bool) {
		return Unnumbered{i.Index, i.donor}, i.donor != NoIndex
	})
}

func (as *Addresses) isDonorLocked(i *iface) bool {
	for _, other := range as.interfaces.byIndex {
		if other.donor == i.Index {
			return true
		}
	}
	return false
}

// detachLocked removes the addresses of an interface that is being deleted, also from the interfaces that use them.
func (as *Addresses) detachLocked(i *iface) {
	i.addresses = nil
	i.donor = NoIndex
	i.AdminUp = false
	as.updateConnectedLocked(i)
	for _, other := range as.interfaces.byIndex {
		if other.donor == i.Index {
			as.setDonorLocked(other, NoIndex)
		}
	}
}

// updateConnectedLocked updates the connected routes of an interface. As in VPP they exist while it is admin up.
func (as *Addresses) updateConnectedLocked(i *iface) {
	want := map[routeKey]fibRoute{}
	if i.AdminUp {
		want = i.connectedRoutes()
	}
	for k := range i.connected {
		if _, ok := want[k]; !ok {
			delete(i.connected, k)
			as.fib.delete(k, SourceInterface)
		}
	}
	for k, r := range want {
		if old, ok := i.connected[k]; !ok || !old.equal(r) {
			i.connected[k] = r
			as.fib.set(k, SourceInterface, r)
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

// checkLocked checks that the donor of an interface exists, and its addresses.
func (as *Addresses) checkLocked(i *iface) error {
	donor := as.interfaces.byIndex[i.donor]
	if i.donor != NoIndex && (donor == nil || donor == i || donor.donor != NoIndex) {
		return fmt.Errorf("%w: %s has the addresses of interface %d", errState, i.Name, i.donor)
	}
	for _, p := range i.addresses {
		if err := i.checkAddress(p); err != nil {
			return fmt.Errorf("%w: %s has address %v: %w", errState, i.Name, p, err)
		}
	}
	return nil
}
