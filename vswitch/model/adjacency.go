package model

import (
	"net/netip"
	"slices"

	"github.com/weftnet/weft/vswitch/forward"
)

// A neighbour makes a host route to itself where the prefix around it is attached to the same interface, or to the
// one whose addresses the neighbour's interface uses. Elsewhere it makes none, or any host could
// draw traffic to itself by claiming an address (VPP: fib_entry_src_adj).

// refineLocked makes or ends the host routes of all an interface's neighbours.
func (m *Model) refineLocked(i *iface) {
	for a := range i.neighbours {
		m.refineNeighbourLocked(i, a)
	}
}

func (m *Model) refineNeighbourLocked(i *iface, a netip.Addr) {
	n := i.neighbours[a]
	k := adjacencyKey(i, a)
	if n.noRoute || isLinkLocal(a) || !m.attachedLocked(i, k) {
		m.unrefineLocked(i, a)
		return
	}
	var paths []Path
	if e := m.entryLocked(k); e != nil {
		paths = e.sources[SourceAdjacency].paths
	}
	path := Path{Interface: i.Index, NextHop: a, Weight: 1}
	if !slices.ContainsFunc(paths, path.same) {
		m.setLocked(k, SourceAdjacency, fibRoute{paths: append(slices.Clone(paths), path), attached: true})
	}
}

// unrefineLocked ends the host route by way of the interface, if there is one.
func (m *Model) unrefineLocked(i *iface, a netip.Addr) {
	k := adjacencyKey(i, a)
	e := m.entryLocked(k)
	if e == nil {
		return
	}
	old, ok := e.sources[SourceAdjacency]
	if !ok {
		return
	}
	left := slices.DeleteFunc(slices.Clone(old.paths), func(p Path) bool { return p.Interface == i.Index })
	switch {
	case len(left) == 0:
		m.dropLocked(k, SourceAdjacency)
	case len(left) < len(old.paths):
		m.setLocked(k, SourceAdjacency, fibRoute{paths: left, attached: true})
	}
}

func adjacencyKey(i *iface, a netip.Addr) routeKey {
	return routeKey{i.table(forward.FamilyOf(a)), netip.PrefixFrom(a, a.BitLen())}
}

// attachedLocked says whether the prefix next around a neighbour of i is on i's link.
func (m *Model) attachedLocked(i *iface, k routeKey) bool {
	for bits := k.prefix.Bits() - 1; bits >= 0; bits-- {
		p, err := k.prefix.Addr().Prefix(bits)
		if err != nil {
			return false
		}
		e := m.entryLocked(routeKey{k.table, p})
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

// coverChangedLocked looks again at the neighbours that a prefix is around.
func (m *Model) coverChangedLocked(k routeKey) {
	if k.prefix.IsSingleIP() {
		return
	}
	for _, i := range m.interfaces {
		if i.table(k.table.Family) != k.table {
			continue
		}
		for a := range i.neighbours {
			if k.prefix.Contains(a) {
				m.refineNeighbourLocked(i, a)
			}
		}
	}
}
