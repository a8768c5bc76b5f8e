package model

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/frame"
)

// maxNeighbours is VPP's limit per family.
const maxNeighbours = 50000

// errStaticNeighbour is VPP's retval if a dynamic neighbour would change a static one.
const errStaticNeighbour = Retval(-2)

// Neighbour is an address on an interface's link.
type Neighbour struct {
	Index   uint32
	Addr    netip.Addr
	MAC     frame.MAC
	Static  bool
	NoRoute bool          // has no host route
	Age     time.Duration // since the last update
}

// neighbour is the stored state of a Neighbour.
type neighbour struct {
	mac     frame.MAC
	static  bool
	noRoute bool
	updated time.Time
}

// AddNeighbour adds or updates a neighbour. A dynamic neighbour does not change a static one.
func (m *Model) AddNeighbour(n Neighbour) error {
	return m.Interfaces.with(n.Index, func(i *iface) error { return m.addNeighbourLocked(i, n) })
}

// DeleteNeighbour deletes a neighbour.
func (m *Model) DeleteNeighbour(index uint32, a netip.Addr) error {
	return m.Interfaces.with(index, func(i *iface) error {
		if i.neighbours[a] == nil {
			return NoSuchEntry
		}
		m.delNeighbourLocked(i, a)
		return nil
	})
}

// FlushNeighbours deletes the neighbours of a family on an interface, or on all for NoIndex.
func (m *Model) FlushNeighbours(index uint32, f forward.Family) error {
	defer m.change()()
	if _, err := m.Interfaces.findLocked(index); err != nil && index != NoIndex {
		return err
	}
	for _, i := range m.Interfaces.byIndex {
		for a := range i.neighbours {
			if (index == NoIndex || index == i.Index) && forward.FamilyOf(a) == f {
				m.delNeighbourLocked(i, a)
			}
		}
	}
	return nil
}

// Neighbours lists the neighbours of a family on an interface, or on all for NoIndex, by interface and address.
func (m *Model) Neighbours(index uint32, f forward.Family) []Neighbour {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []Neighbour
	for _, i := range m.Interfaces.byIndex {
		if index != NoIndex && index != i.Index {
			continue
		}
		for a, n := range i.neighbours {
			if forward.FamilyOf(a) == f {
				list = append(list, Neighbour{
					Index:   i.Index,
					Addr:    a,
					MAC:     n.mac,
					Static:  n.static,
					NoRoute: n.noRoute,
					Age:     m.now().Sub(n.updated),
				})
			}
		}
	}
	slices.SortFunc(list, func(a, b Neighbour) int {
		return cmp.Or(cmp.Compare(a.Index, b.Index), a.Addr.Compare(b.Addr))
	})
	return list
}

func (m *Model) addNeighbourLocked(i *iface, n Neighbour) error {
	old := i.neighbours[n.Addr]
	switch {
	case old == nil && m.neighbours[forward.FamilyOf(n.Addr)] >= maxNeighbours:
		return LimitExceeded
	case old != nil && old.static && !n.Static && old.mac != n.MAC:
		return errStaticNeighbour
	}
	static := n.Static || old != nil && old.static
	if err := m.engine.SetNeighbour(i.Index, n.Addr, n.MAC, static); err != nil {
		return err
	}
	if old == nil {
		old = &neighbour{noRoute: n.NoRoute}
		i.neighbours[n.Addr] = old
		m.neighbours[forward.FamilyOf(n.Addr)]++
	}
	old.mac = n.MAC
	old.static = static
	old.updated = m.now()
	m.fib.updateHostRoute(i, n.Addr)
	return nil
}

func (m *Model) delNeighbourLocked(i *iface, a netip.Addr) {
	delete(i.neighbours, a)
	m.neighbours[forward.FamilyOf(a)]--
	m.engine.DelNeighbour(i.Index, a)
	m.fib.deleteHostRoute(i, a)
}

// deleteLearnedLocked deletes the dynamic neighbours that match.
func (m *Model) deleteLearnedLocked(i *iface, match func(netip.Addr) bool) {
	for a, n := range i.neighbours {
		if !n.static && match(a) {
			m.delNeighbourLocked(i, a)
		}
	}
}

// updateHostRoutes updates the host routes of all neighbours of an interface.
func (fb *fib) updateHostRoutes(i *iface) {
	for a := range i.neighbours {
		fb.updateHostRoute(i, a)
	}
}

// updateHostRoute adds or deletes the host route of a neighbour. As in VPP (fib_entry_src_adj) a neighbour has a host
// route if the prefix that covers it is attached to its interface or to the donor. Otherwise any host could attract
// traffic by claiming an address.
func (fb *fib) updateHostRoute(i *iface, a netip.Addr) {
	n := i.neighbours[a]
	k := adjacencyKey(i, a)
	if n.noRoute || isLinkLocal(a) || !fb.attached(i, k) {
		fb.deleteHostRoute(i, a)
		return
	}
	old, _ := fb.route(k, SourceAdjacency)
	path := Path{Interface: i.Index, NextHop: a, Weight: 1}
	if !slices.ContainsFunc(old.paths, path.same) {
		fb.set(k, SourceAdjacency, fibRoute{paths: append(slices.Clone(old.paths), path), attached: true})
	}
}

// deleteHostRoute deletes the path over the interface from the host route of a neighbour.
func (fb *fib) deleteHostRoute(i *iface, a netip.Addr) {
	k := adjacencyKey(i, a)
	old, ok := fb.route(k, SourceAdjacency)
	if !ok {
		return
	}
	left := slices.DeleteFunc(slices.Clone(old.paths), func(p Path) bool { return p.Interface == i.Index })
	switch {
	case len(left) == 0:
		fb.delete(k, SourceAdjacency)
	case len(left) < len(old.paths):
		fb.set(k, SourceAdjacency, fibRoute{paths: left, attached: true})
	}
}

func adjacencyKey(i *iface, a netip.Addr) routeKey {
	return routeKey{i.table(forward.FamilyOf(a)), netaddr.Single(a)}
}

// attached reports whether the longest prefix that covers a neighbour of i is attached to i or its donor.
func (fb *fib) attached(i *iface, k routeKey) bool {
	for bits := k.prefix.Bits() - 1; bits >= 0; bits-- {
		p, err := k.prefix.Addr().Prefix(bits)
		if err != nil {
			return false
		}
		e := fb.entry(routeKey{k.table, p})
		if e == nil {
			continue
		}
		_, r := e.best()
		if !r.attached || len(r.paths) == 0 || r.paths[0].gone {
			return false
		}
		return r.paths[0].Interface == i.Index || i.donor != NoIndex && r.paths[0].Interface == i.donor
	}
	return false
}

// coverChanged updates the host routes of the neighbours that a changed prefix covers.
func (fb *fib) coverChanged(k routeKey) {
	if k.prefix.IsSingleIP() {
		return
	}
	for _, i := range fb.interfaces {
		if i.table(k.table.Family) != k.table {
			continue
		}
		for a := range i.neighbours {
			if k.prefix.Contains(a) {
				fb.updateHostRoute(i, a)
			}
		}
	}
}
