package model

import (
	"net/netip"

	"github.com/weftnet/weft/vswitch/forward"
)

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
