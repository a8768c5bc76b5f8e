package model

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/vswitch/forward"
)

// AddProxyARP adds a range of addresses for which interfaces with proxy ARP answer. It succeeds if the range exists.
func (m *Model) AddProxyARP(r forward.ProxyRange) error {
	defer m.change()()
	if m.fib.tables[forward.TableKey{Family: forward.IP4, ID: r.Table}] == nil {
		return NoSuchFIB
	}
	if !slices.Contains(m.proxyARPs, r) {
		m.proxyARPs = append(m.proxyARPs, r)
		m.syncProxiesLocked()
	}
	return nil
}

// DeleteProxyARP deletes a range, which must match exactly.
func (m *Model) DeleteProxyARP(r forward.ProxyRange) error {
	defer m.change()()
	if m.fib.tables[forward.TableKey{Family: forward.IP4, ID: r.Table}] == nil {
		return NoSuchFIB
	}
	at := slices.Index(m.proxyARPs, r)
	if at < 0 {
		return NoSuchEntry
	}
	m.proxyARPs = slices.Delete(m.proxyARPs, at, at+1)
	m.syncProxiesLocked()
	return nil
}

// ProxyARPs lists the ranges in the order of AddProxyARP.
func (m *Model) ProxyARPs() []forward.ProxyRange {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.proxyARPs)
}

// SetProxyARP enables or disables proxy ARP for the ranges of the interface's VRF.
func (m *Model) SetProxyARP(index uint32, on bool) error {
	return m.setProxy(index, func(i *iface) { i.proxyARP = on })
}

// SetProxyND enables or disables answers to neighbour solicitations for all IPv6 addresses from hosts with global
// addresses.
func (m *Model) SetProxyND(index uint32, on bool) error {
	return m.setProxy(index, func(i *iface) { i.proxyND = on })
}

func (m *Model) setProxy(index uint32, set func(*iface)) error {
	return m.Interfaces.with(index, func(i *iface) error {
		set(i)
		m.Interfaces.syncLocked(i)
		return nil
	})
}

// ProxyARPInterfaces lists the indexes of the interfaces with proxy ARP.
func (m *Model) ProxyARPInterfaces() []uint32 {
	return listInterfaces(m.Interfaces, NoIndex, func(i *iface) (uint32, bool) { return i.Index, i.proxyARP })
}

// AddProxyND adds a route to a host behind an interface. The other interfaces of its VRF answer for the host.
func (m *Model) AddProxyND(index uint32, a netip.Addr) error {
	return m.Interfaces.with(index, func(i *iface) error {
		if _, ok := i.proxyHosts[a]; ok {
			return nil
		}
		table := i.table(forward.IP6)
		i.proxyHosts[a] = table
		m.updateProxyRouteLocked(table, a)
		m.syncProxiesLocked()
		return nil
	})
}

// DeleteProxyND deletes the route to a host and the neighbour. It succeeds if the host is not proxied.
func (m *Model) DeleteProxyND(index uint32, a netip.Addr) error {
	return m.Interfaces.with(index, func(i *iface) error {
		if table, ok := i.proxyHosts[a]; ok {
			delete(i.proxyHosts, a)
			m.updateProxyRouteLocked(table, a)
			m.syncProxiesLocked()
		}
		if i.neighbours[a] != nil {
			m.Neighbours.deleteLocked(i, a)
		}
		return nil
	})
}

// ProxyNDs lists the proxied hosts by VRF and address.
func (m *Model) ProxyNDs() []forward.ProxyHost {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.proxyHostsLocked()
}

func (m *Model) proxyHostsLocked() []forward.ProxyHost {
	var list []forward.ProxyHost
	for n, i := range m.Interfaces.byIndex {
		for a, table := range i.proxyHosts {
			list = append(list, forward.ProxyHost{Table: table.ID, Addr: a, Interface: n})
		}
	}
	slices.SortFunc(list, func(a, b forward.ProxyHost) int {
		return cmp.Or(cmp.Compare(a.Table, b.Table), a.Addr.Compare(b.Addr), cmp.Compare(a.Interface, b.Interface))
	})
	return list
}

// updateProxyRouteLocked updates the route to a proxied host, which has a path over each interface of the host.
func (m *Model) updateProxyRouteLocked(table forward.TableKey, a netip.Addr) {
	k := routeKey{table, netaddr.Single(a)}
	var paths []Path
	for _, n := range m.Interfaces.indexesLocked() {
		if in, ok := m.Interfaces.byIndex[n].proxyHosts[a]; ok && in == table {
			paths = append(paths, Path{Interface: n, NextHop: a, Weight: 1})
		}
	}
	if len(paths) == 0 || m.fib.tables[table] == nil {
		m.fib.delete(k, SourceProxyND)
		return
	}
	m.fib.set(k, SourceProxyND, fibRoute{paths: paths})
}

// deleteProxiesLocked deletes the proxy state of a deleted interface.
func (m *Model) deleteProxiesLocked(i *iface) {
	hosts := i.proxyHosts
	i.proxyHosts = nil
	i.proxyARP = false
	i.proxyND = false
	for a, table := range hosts {
		m.updateProxyRouteLocked(table, a)
	}
	if len(hosts) > 0 {
		m.syncProxiesLocked()
	}
}

// deleteTableProxiesLocked deletes the ranges and hosts of a deleted VRF.
func (m *Model) deleteTableProxiesLocked(k forward.TableKey) {
	if k.Family == forward.IP4 {
		m.proxyARPs = slices.DeleteFunc(m.proxyARPs, func(r forward.ProxyRange) bool { return r.Table == k.ID })
	}
	for _, i := range m.Interfaces.byIndex {
		maps.DeleteFunc(i.proxyHosts, func(_ netip.Addr, table forward.TableKey) bool { return table == k })
	}
	m.syncProxiesLocked()
}

func (m *Model) syncProxiesLocked() {
	m.engine.SetProxies(forward.Proxies{ARP: slices.Clone(m.proxyARPs), ND: m.proxyHostsLocked()})
}

// PuntRedirect redirects packets that are addressed to the dataplane itself and that it does not handle; see
// forward.Redirect.
type PuntRedirect struct {
	Rx     uint32 // receiving interface; NoIndex: all interfaces without own redirect
	Family forward.Family
	Path   Path
}

type redirectKey struct {
	rx     uint32
	family forward.Family
}

// SetPuntRedirect adds or replaces a redirect. As in VPP the receiving interface need not exist. It supports one path
// over an interface.
func (m *Model) SetPuntRedirect(rx uint32, f forward.Family, paths []Path) error {
	defer m.change()()
	if len(paths) != 1 || paths[0].Kind != PathNormal {
		return Unsupported
	}
	if m.Interfaces.byIndex[paths[0].Interface] == nil {
		return InvalidSwIfIndex
	}
	m.redirects[redirectKey{rx, f}] = paths[0]
	m.syncRedirectsLocked()
	return nil
}

// DeletePuntRedirect deletes a redirect. It succeeds if the redirect is missing.
func (m *Model) DeletePuntRedirect(rx uint32, f forward.Family) {
	defer m.change()()
	delete(m.redirects, redirectKey{rx, f})
	m.syncRedirectsLocked()
}

// PuntRedirects lists the redirect of a receiving interface, or all for NoIndex.
func (m *Model) PuntRedirects(rx uint32, f forward.Family) []PuntRedirect {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []PuntRedirect
	for k, path := range m.redirects {
		if k.family == f && (rx == NoIndex || rx == k.rx) {
			list = append(list, PuntRedirect{k.rx, k.family, path})
		}
	}
	slices.SortFunc(list, func(a, b PuntRedirect) int { return cmp.Compare(a.Rx, b.Rx) })
	return list
}

// SetPuntUDP sets whether redirects apply to UDP packets to ports without listener. Otherwise these are rejected.
func (m *Model) SetPuntUDP(f forward.Family, on bool) {
	defer m.change()()
	m.puntUDP[f] = on
	m.syncRedirectsLocked()
}

// detachRedirectsLocked disables the redirects to a deleted interface. They stay until their owner deletes them.
func (m *Model) detachRedirectsLocked(i *iface) {
	for k, path := range m.redirects {
		if path.Interface == i.Index {
			path.gone = true
			m.redirects[k] = path
			m.syncRedirectsLocked()
		}
	}
}

func (m *Model) syncRedirectsLocked() {
	for _, i := range m.Interfaces.byIndex {
		m.Interfaces.syncLocked(i)
	}
}

// redirectLocked returns the redirect of an interface for the engine, or nil.
func (m *Model) redirectLocked(i *iface, f forward.Family) *forward.Redirect {
	path, ok := m.redirects[redirectKey{i.Index, f}]
	if !ok {
		path, ok = m.redirects[redirectKey{NoIndex, f}]
	}
	if !ok {
		return nil
	}
	r := &forward.Redirect{Interface: path.Interface, NextHop: path.NextHop, UDP: m.puntUDP[f]}
	if path.gone {
		r.Interface = NoIndex // drop
	}
	if r.NextHop.IsValid() && r.NextHop.IsUnspecified() {
		r.NextHop = netip.Addr{}
	}
	return r
}
