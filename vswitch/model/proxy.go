package model

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/weftnet/weft/vswitch/forward"
)

// AddProxyARP lets the interfaces with proxy ARP answer for a range; one that is there is no error.
func (m *Model) AddProxyARP(r forward.ProxyRange) error {
	defer m.change()()
	if m.tables[forward.TableKey{Family: forward.IP4, ID: r.Table}] == nil {
		return NoSuchFIB
	}
	if !slices.Contains(m.proxyARPs, r) {
		m.proxyARPs = append(m.proxyARPs, r)
		m.showProxiesLocked()
	}
	return nil
}

// DeleteProxyARP ends that for exactly this range.
func (m *Model) DeleteProxyARP(r forward.ProxyRange) error {
	defer m.change()()
	if m.tables[forward.TableKey{Family: forward.IP4, ID: r.Table}] == nil {
		return NoSuchFIB
	}
	at := slices.Index(m.proxyARPs, r)
	if at < 0 {
		return NoSuchEntry
	}
	m.proxyARPs = slices.Delete(m.proxyARPs, at, at+1)
	m.showProxiesLocked()
	return nil
}

// ProxyARPs lists the ranges in the order they were added in.
func (m *Model) ProxyARPs() []forward.ProxyRange {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.proxyARPs)
}

// SetProxyARP lets an interface answer for the ranges of its table, or not.
func (m *Model) SetProxyARP(index uint32, on bool) error {
	return m.setProxy(index, func(i *iface) { i.proxyARP = on })
}

// SetProxyND lets an interface answer for every IPv6 address that a host with a global address asks for, or not.
func (m *Model) SetProxyND(index uint32, on bool) error {
	return m.setProxy(index, func(i *iface) { i.proxyND = on })
}

func (m *Model) setProxy(index uint32, set func(*iface)) error {
	defer m.change()()
	i, err := m.interfaceLocked(index)
	if err != nil {
		return err
	}
	set(i)
	m.setEngineLocked(i)
	return nil
}

// ProxyARPInterfaces are the indexes of the interfaces with proxy ARP.
func (m *Model) ProxyARPInterfaces() []uint32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.DeleteFunc(m.indexesLocked(), func(n uint32) bool { return !m.interfaces[n].proxyARP })
}

// AddProxyND makes a route to a host behind an interface, and lets the other interfaces of its table answer for the host.
func (m *Model) AddProxyND(index uint32, a netip.Addr) error {
	defer m.change()()
	i, err := m.interfaceLocked(index)
	if err != nil {
		return err
	}
	if _, ok := i.proxyHosts[a]; ok {
		return nil
	}
	if i.proxyHosts == nil {
		i.proxyHosts = map[netip.Addr]forward.TableKey{}
	}
	table := i.table(forward.IP6)
	i.proxyHosts[a] = table
	m.routeProxyLocked(table, a)
	m.showProxiesLocked()
	return nil
}

// DeleteProxyND ends that, and forgets the neighbour; a host that is not proxied is no error.
func (m *Model) DeleteProxyND(index uint32, a netip.Addr) error {
	defer m.change()()
	i, err := m.interfaceLocked(index)
	if err != nil {
		return err
	}
	if table, ok := i.proxyHosts[a]; ok {
		delete(i.proxyHosts, a)
		m.routeProxyLocked(table, a)
		m.showProxiesLocked()
	}
	if i.neighbours[a] != nil {
		m.delNeighbourLocked(i, a)
	}
	return nil
}

// ProxyNDs lists the hosts by table and address.
func (m *Model) ProxyNDs() []forward.ProxyHost {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.proxyHostsLocked()
}

func (m *Model) proxyHostsLocked() []forward.ProxyHost {
	var list []forward.ProxyHost
	for n, i := range m.interfaces {
		for a, table := range i.proxyHosts {
			list = append(list, forward.ProxyHost{Table: table.ID, Addr: a, Interface: n})
		}
	}
	slices.SortFunc(list, func(a, b forward.ProxyHost) int {
		return cmp.Or(cmp.Compare(a.Table, b.Table), a.Addr.Compare(b.Addr), cmp.Compare(a.Interface, b.Interface))
	})
	return list
}

// routeProxyLocked brings the route to a proxied host in line with the interfaces that it is behind.
func (m *Model) routeProxyLocked(table forward.TableKey, a netip.Addr) {
	k := routeKey{table, netip.PrefixFrom(a, a.BitLen())}
	var paths []Path
	for _, n := range m.indexesLocked() {
		if in, ok := m.interfaces[n].proxyHosts[a]; ok && in == table {
			paths = append(paths, Path{Interface: n, NextHop: a, Weight: 1})
		}
	}
	if len(paths) == 0 || m.tables[table] == nil {
		m.dropLocked(k, SourceProxyND)
		return
	}
	m.setLocked(k, SourceProxyND, fibRoute{paths: paths})
}

// endProxiesLocked ends what an interface that goes is a proxy for.
func (m *Model) endProxiesLocked(i *iface) {
	hosts := i.proxyHosts
	i.proxyHosts, i.proxyARP, i.proxyND = nil, false, false
	for a, table := range maps.All(hosts) {
		m.routeProxyLocked(table, a)
	}
	if len(hosts) > 0 {
		m.showProxiesLocked()
	}
}

// dropProxiesLocked forgets the ranges and hosts of a table that goes.
func (m *Model) dropProxiesLocked(k forward.TableKey) {
	if k.Family == forward.IP4 {
		m.proxyARPs = slices.DeleteFunc(m.proxyARPs, func(r forward.ProxyRange) bool { return r.Table == k.ID })
	}
	for _, i := range m.interfaces {
		maps.DeleteFunc(i.proxyHosts, func(_ netip.Addr, table forward.TableKey) bool { return table == k })
	}
	m.showProxiesLocked()
}

func (m *Model) showProxiesLocked() {
	m.engine.SetProxies(forward.Proxies{ARP: slices.Clone(m.proxyARPs), ND: m.proxyHostsLocked()})
}

// PuntRedirect sends packets for the dataplane itself that it does not take elsewhere: see forward.Redirect.
type PuntRedirect struct {
	Rx     uint32 // the interface that receives them; NoIndex: each that has no redirect of its own
	Family forward.Family
	Path   Path
}

type redirectKey struct {
	rx     uint32
	family forward.Family
}

// SetPuntRedirect adds a redirect, in the place of the one that may be there. As in VPP it does not matter whether the
// receiving interface exists. One path is served, by an interface.
func (m *Model) SetPuntRedirect(rx uint32, f forward.Family, paths []Path) error {
	defer m.change()()
	if len(paths) != 1 || paths[0].Kind != PathNormal {
		return Unsupported
	}
	if m.interfaces[paths[0].Interface] == nil {
		return InvalidSwIfIndex
	}
	m.redirects[redirectKey{rx, f}] = paths[0]
	m.showRedirectsLocked()
	return nil
}

// DeletePuntRedirect removes a redirect; a missing one is no error.
func (m *Model) DeletePuntRedirect(rx uint32, f forward.Family) {
	defer m.change()()
	delete(m.redirects, redirectKey{rx, f})
	m.showRedirectsLocked()
}

// PuntRedirects lists the redirect of an interface, or all for NoIndex.
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

// SetPuntUDP has UDP to ports that nothing listens on redirected too, or refused.
func (m *Model) SetPuntUDP(f forward.Family, on bool) {
	defer m.change()()
	m.puntUDP[f] = on
	m.showRedirectsLocked()
}

func (m *Model) showRedirectsLocked() {
	for _, n := range m.indexesLocked() {
		m.setEngineLocked(m.interfaces[n])
	}
}

// redirectLocked is what the engine needs of an interface's redirect.
func (m *Model) redirectLocked(i *iface, f forward.Family) *forward.Redirect {
	path, is := m.redirects[redirectKey{i.Index, f}]
	if !is {
		path, is = m.redirects[redirectKey{NoIndex, f}]
	}
	if !is {
		return nil
	}
	next := path.NextHop
	if next.IsValid() && next.IsUnspecified() {
		next = netip.Addr{}
	}
	return &forward.Redirect{Interface: path.Interface, NextHop: next, UDP: m.puntUDP[f]}
}
