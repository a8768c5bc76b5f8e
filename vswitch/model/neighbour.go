package model

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/frame"
)

// maxNeighbours is VPP's limit for a family.
const maxNeighbours = 50000

// RefusedStatic is what VPP answers when a dynamic neighbour would change a static one.
const RefusedStatic = Retval(-2)

// Neighbour is an address on an interface's link.
type Neighbour struct {
	Index   uint32
	Addr    netip.Addr
	MAC     frame.MAC
	Static  bool
	NoRoute bool          // makes no route of its own
	Age     time.Duration // since it was last set or confirmed
}

// neighbour is what an interface remembers of a Neighbour.
type neighbour struct {
	mac     frame.MAC
	static  bool
	noRoute bool
	updated time.Time
}

// AddNeighbour sets a neighbour. A static one is not changed by a dynamic one.
func (m *Model) AddNeighbour(n Neighbour) error {
	defer m.change()()
	i, err := m.interfaceLocked(n.Index)
	if err != nil {
		return err
	}
	return m.addNeighbourLocked(i, n)
}

// DeleteNeighbour removes a neighbour.
func (m *Model) DeleteNeighbour(index uint32, a netip.Addr) error {
	defer m.change()()
	i, err := m.interfaceLocked(index)
	if err != nil {
		return err
	}
	if i.neighbours[a] == nil {
		return NoSuchEntry
	}
	m.delNeighbourLocked(i, a)
	return nil
}

// FlushNeighbours removes a family's neighbours of an interface, or of all for NoIndex.
func (m *Model) FlushNeighbours(index uint32, f forward.Family) error {
	defer m.change()()
	if _, err := m.interfaceLocked(index); err != nil && index != NoIndex {
		return err
	}
	for _, i := range m.interfaces {
		for a := range i.neighbours {
			if (index == NoIndex || index == i.Index) && forward.FamilyOf(a) == f {
				m.delNeighbourLocked(i, a)
			}
		}
	}
	return nil
}

// Neighbours lists a family's neighbours of an interface, or of all for NoIndex, by index and address.
func (m *Model) Neighbours(index uint32, f forward.Family) []Neighbour {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []Neighbour
	for _, i := range m.interfaces {
		if index != NoIndex && index != i.Index {
			continue
		}
		for a, n := range i.neighbours {
			if forward.FamilyOf(a) == f {
				list = append(list, Neighbour{Index: i.Index, Addr: a, MAC: n.mac, Static: n.static, NoRoute: n.noRoute, Age: m.now().Sub(n.updated)})
			}
		}
	}
	slices.SortFunc(list, func(a, b Neighbour) int { return cmp.Or(cmp.Compare(a.Index, b.Index), a.Addr.Compare(b.Addr)) })
	return list
}

func (m *Model) addNeighbourLocked(i *iface, n Neighbour) error {
	old := i.neighbours[n.Addr]
	switch {
	case old == nil && m.neighbours[forward.FamilyOf(n.Addr)] >= maxNeighbours:
		return LimitExceeded
	case old != nil && old.static && !n.Static && old.mac != n.MAC:
		return RefusedStatic
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
	old.mac, old.static, old.updated = n.MAC, static, m.now()
	m.refineNeighbourLocked(i, n.Addr)
	return nil
}

func (m *Model) delNeighbourLocked(i *iface, a netip.Addr) {
	delete(i.neighbours, a)
	m.neighbours[forward.FamilyOf(a)]--
	m.engine.DelNeighbour(i.Index, a)
	m.unrefineLocked(i, a)
}

// forgetLearnedLocked removes the dynamic neighbours that are chosen.
func (m *Model) forgetLearnedLocked(i *iface, chosen func(netip.Addr) bool) {
	for a, n := range maps.Clone(i.neighbours) {
		if !n.static && chosen(a) {
			m.delNeighbourLocked(i, a)
		}
	}
}

func everything(netip.Addr) bool { return true }

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
