package model

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/vswitch/forward"
)

// Proxies are the addresses that interfaces answer for: ranges of proxy ARP, and hosts of proxy ND.
type Proxies struct {
	*barrier
	interfaces *Interfaces
	neighbours *Neighbours
	fib        *fib
	ranges     []forward.ProxyRange
}

// AddARP adds a range of addresses for which interfaces with proxy ARP answer. It succeeds if the range exists.
func (ps *Proxies) AddARP(r forward.ProxyRange) error {
	defer ps.change()()
	if ps.fib.tables[forward.TableKey{Family: forward.IP4, ID: r.Table}] == nil {
		return NoSuchFIB
	}
	if !slices.Contains(ps.ranges, r) {
		ps.ranges = append(ps.ranges, r)
		ps.syncLocked()
	}
	return nil
}

// DeleteARP deletes a range, which must match exactly.
func (ps *Proxies) DeleteARP(r forward.ProxyRange) error {
	defer ps.change()()
	if ps.fib.tables[forward.TableKey{Family: forward.IP4, ID: r.Table}] == nil {
		return NoSuchFIB
	}
	at := slices.Index(ps.ranges, r)
	if at < 0 {
		return NoSuchEntry
	}
	ps.ranges = slices.Delete(ps.ranges, at, at+1)
	ps.syncLocked()
	return nil
}

// ARPs lists the ranges in the order of AddARP.
func (ps *Proxies) ARPs() []forward.ProxyRange {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return slices.Clone(ps.ranges)
}

// SetARP enables or disables proxy ARP for the ranges of the interface's VRF.
func (ps *Proxies) SetARP(index uint32, on bool) error {
	return ps.set(index, func(i *iface) { i.proxyARP = on })
}

// SetND enables or disables answers to neighbour solicitations for all IPv6 addresses from hosts with global
// addresses.
func (ps *Proxies) SetND(index uint32, on bool) error {
	return ps.set(index, func(i *iface) { i.proxyND = on })
}

func (ps *Proxies) set(index uint32, set func(*iface)) error {
	return ps.interfaces.with(index, func(i *iface) error {
		set(i)
		ps.interfaces.syncLocked(i)
		return nil
	})
}

// ARPInterfaces lists the indexes of the interfaces with proxy ARP.
func (ps *Proxies) ARPInterfaces() []uint32 {
	return listInterfaces(ps.interfaces, NoIndex, func(i *iface) (uint32, bool) { return i.Index, i.proxyARP })
}

// AddND adds a route to a host behind an interface. The other interfaces of its VRF answer for the host.
func (ps *Proxies) AddND(index uint32, a netip.Addr) error {
	return ps.interfaces.with(index, func(i *iface) error {
		if _, ok := i.proxyHosts[a]; ok {
			return nil
		}
		table := i.table(forward.IP6)
		i.proxyHosts[a] = table
		ps.updateRouteLocked(table, a)
		ps.syncLocked()
		return nil
	})
}

// DeleteND deletes the route to a host and the neighbour. It succeeds if the host is not proxied.
func (ps *Proxies) DeleteND(index uint32, a netip.Addr) error {
	return ps.interfaces.with(index, func(i *iface) error {
		if table, ok := i.proxyHosts[a]; ok {
			delete(i.proxyHosts, a)
			ps.updateRouteLocked(table, a)
			ps.syncLocked()
		}
		if i.neighbours[a] != nil {
			ps.neighbours.deleteLocked(i, a)
		}
		return nil
	})
}

// NDs lists the proxied hosts by VRF and address.
func (ps *Proxies) NDs() []forward.ProxyHost {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.hostsLocked()
}

func (ps *Proxies) hostsLocked() []forward.ProxyHost {
	var list []forward.ProxyHost
	for n, i := range ps.interfaces.byIndex {
		for a, table := range i.proxyHosts {
			list = append(list, forward.ProxyHost{Table: table.ID, Addr: a, Interface: n})
		}
	}
	slices.SortFunc(list, func(a, b forward.ProxyHost) int {
		return cmp.Or(cmp.Compare(a.Table, b.Table), a.Addr.Compare(b.Addr), cmp.Compare(a.Interface, b.Interface))
	})
	return list
}

// updateRouteLocked updates the route to a proxied host, which has a path over each interface of the host.
func (ps *Proxies) updateRouteLocked(table forward.TableKey, a netip.Addr) {
	k := routeKey{table, netaddr.Single(a)}
	var paths []Path
	for _, n := range ps.interfaces.indexesLocked() {
		if in, ok := ps.interfaces.byIndex[n].proxyHosts[a]; ok && in == table {
			paths = append(paths, Path{Interface: n, NextHop: a, Weight: 1})
		}
	}
	if len(paths) == 0 || ps.fib.tables[table] == nil {
		ps.fib.delete(k, SourceProxyND)
		return
	}
	ps.fib.set(k, SourceProxyND, fibRoute{paths: paths})
}

// detachLocked deletes the proxy state of a deleted interface.
func (ps *Proxies) detachLocked(i *iface) {
	hosts := i.proxyHosts
	i.proxyHosts = nil
	i.proxyARP = false
	i.proxyND = false
	for a, table := range hosts {
		ps.updateRouteLocked(table, a)
	}
	if len(hosts) > 0 {
		ps.syncLocked()
	}
}

// deleteTableLocked deletes the ranges and hosts of a deleted VRF.
func (ps *Proxies) deleteTableLocked(k forward.TableKey) {
	if k.Family == forward.IP4 {
		ps.ranges = slices.DeleteFunc(ps.ranges, func(r forward.ProxyRange) bool { return r.Table == k.ID })
	}
	for _, i := range ps.interfaces.byIndex {
		maps.DeleteFunc(i.proxyHosts, func(_ netip.Addr, table forward.TableKey) bool { return table == k })
	}
	ps.syncLocked()
}

func (ps *Proxies) syncLocked() {
	ps.engine.SetProxies(forward.Proxies{ARP: slices.Clone(ps.ranges), ND: ps.hostsLocked()})
}

func (ps *Proxies) stateLocked(s *State) { s.ProxyARPs = slices.Clone(ps.ranges) }

func (ps *Proxies) restoreLocked(s *State) error {
	ps.ranges = slices.Clone(s.ProxyARPs)
	return nil
}
