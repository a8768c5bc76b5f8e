package model

import (
	"cmp"
	"fmt"
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

// Neighbours are the neighbours of all interfaces and their host routes.
type Neighbours struct {
	*barrier
	interfaces *Interfaces
	fib        *fib
	count      map[forward.Family]int
}

func newNeighbours(b *barrier, interfaces *Interfaces, fb *fib) *Neighbours {
	return &Neighbours{barrier: b, interfaces: interfaces, fib: fb, count: map[forward.Family]int{}}
}

// Add adds or updates a neighbour. A dynamic neighbour does not change a static one.
func (ns *Neighbours) Add(n Neighbour) error {
	return ns.interfaces.with(n.Index, func(i *iface) error { return ns.addLocked(i, n) })
}

// Delete deletes a neighbour.
func (ns *Neighbours) Delete(index uint32, a netip.Addr) error {
	return ns.interfaces.with(index, func(i *iface) error {
		if i.neighbours[a] == nil {
			return NoSuchEntry
		}
		ns.deleteLocked(i, a)
		return nil
	})
}

// Flush deletes the neighbours of a family on an interface, or on all for NoIndex.
func (ns *Neighbours) Flush(index uint32, f forward.Family) error {
	defer ns.change()()
	if _, err := ns.interfaces.findLocked(index); err != nil && index != NoIndex {
		return err
	}
	for _, i := range ns.interfaces.byIndex {
		for a := range i.neighbours {
			if (index == NoIndex || index == i.Index) && forward.FamilyOf(a) == f {
				ns.deleteLocked(i, a)
			}
		}
	}
	return nil
}

// List lists the neighbours of a family on an interface, or on all for NoIndex, by interface and address.
func (ns *Neighbours) List(index uint32, f forward.Family) []Neighbour {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	var list []Neighbour
	for _, i := range ns.interfaces.byIndex {
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
					Age:     time.Since(n.updated),
				})
			}
		}
	}
	slices.SortFunc(list, func(a, b Neighbour) int {
		return cmp.Or(cmp.Compare(a.Index, b.Index), a.Addr.Compare(b.Addr))
	})
	return list
}

func (ns *Neighbours) addLocked(i *iface, n Neighbour) error {
	old := i.neighbours[n.Addr]
	switch {
	case old == nil && ns.count[forward.FamilyOf(n.Addr)] >= maxNeighbours:
		return LimitExceeded
	case old != nil && old.static && !n.Static && old.mac != n.MAC:
		return errStaticNeighbour
	}
	static := n.Static || old != nil && old.static
	if err := ns.engine.SetNeighbour(i.Index, n.Addr, n.MAC, static); err != nil {
		return err
	}
	if old == nil {
		old = &neighbour{noRoute: n.NoRoute}
		i.neighbours[n.Addr] = old
		ns.count[forward.FamilyOf(n.Addr)]++
	}
	old.mac = n.MAC
	old.static = static
	old.updated = time.Now()
	ns.updateRouteLocked(i, n.Addr)
	return nil
}

func (ns *Neighbours) deleteLocked(i *iface, a netip.Addr) {
	delete(i.neighbours, a)
	ns.count[forward.FamilyOf(a)]--
	ns.engine.DelNeighbour(i.Index, a)
	ns.deleteRouteLocked(i, a)
}

// deleteLearnedLocked deletes the dynamic neighbours that match.
func (ns *Neighbours) deleteLearnedLocked(i *iface, match func(netip.Addr) bool) {
	for a, n := range i.neighbours {
		if !n.static && match(a) {
			ns.deleteLocked(i, a)
		}
	}
}

// detachLocked deletes the neighbours of an interface that is being deleted.
func (ns *Neighbours) detachLocked(i *iface) {
	for a := range i.neighbours {
		ns.deleteLocked(i, a)
	}
}

// updateRoutesLocked updates the host routes of all neighbours of an interface.
func (ns *Neighbours) updateRoutesLocked(i *iface) {
	for a := range i.neighbours {
		ns.updateRouteLocked(i, a)
	}
}

// updateRouteLocked adds or deletes the host route of a neighbour. As in VPP (fib_entry_src_adj) a neighbour has a host
// route if the prefix that covers it is attached to its interface or to the donor. Otherwise any host could attract
// traffic by claiming an address.
func (ns *Neighbours) updateRouteLocked(i *iface, a netip.Addr) {
	n := i.neighbours[a]
	k := adjacencyKey(i, a)
	if n.noRoute || isLinkLocal(a) || !ns.attachedLocked(i, k) {
		ns.deleteRouteLocked(i, a)
		return
	}
	old, _ := ns.fib.route(k, SourceAdjacency)
	path := Path{Interface: i.Index, NextHop: a, Weight: 1}
	if !slices.ContainsFunc(old.paths, path.same) {
		ns.fib.set(k, SourceAdjacency, fibRoute{paths: append(slices.Clone(old.paths), path), attached: true})
	}
}

// deleteRouteLocked deletes the path over the interface from the host route of a neighbour.
func (ns *Neighbours) deleteRouteLocked(i *iface, a netip.Addr) {
	k := adjacencyKey(i, a)
	old, ok := ns.fib.route(k, SourceAdjacency)
	if !ok {
		return
	}
	left := slices.DeleteFunc(slices.Clone(old.paths), func(p Path) bool { return p.Interface == i.Index })
	switch {
	case len(left) == 0:
		ns.fib.delete(k, SourceAdjacency)
	case len(left) < len(old.paths):
		ns.fib.set(k, SourceAdjacency, fibRoute{paths: left, attached: true})
	}
}

func adjacencyKey(i *iface, a netip.Addr) routeKey {
	return routeKey{i.table(forward.FamilyOf(a)), netaddr.Single(a)}
}

// attachedLocked reports whether the longest prefix that covers a neighbour of i is attached to i or its donor.
func (ns *Neighbours) attachedLocked(i *iface, k routeKey) bool {
	for bits := k.prefix.Bits() - 1; bits >= 0; bits-- {
		p, err := k.prefix.Addr().Prefix(bits)
		if err != nil {
			return false
		}
		e := ns.fib.entry(routeKey{k.table, p})
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

// coverChangedLocked updates the host routes of the neighbours that a changed prefix covers.
func (ns *Neighbours) coverChangedLocked(k routeKey) {
	if k.prefix.IsSingleIP() {
		return
	}
	for _, i := range ns.interfaces.byIndex {
		if i.table(k.table.Family) != k.table {
			continue
		}
		for a := range i.neighbours {
			if k.prefix.Contains(a) {
				ns.updateRouteLocked(i, a)
			}
		}
	}
}

// restoreLocked adds the neighbours of an interface of a state.
func (ns *Neighbours) restoreLocked(i *iface, all []Neighbour) error {
	now := time.Now()
	for _, n := range all {
		if !n.Addr.IsValid() || i.neighbours[n.Addr] != nil {
			return fmt.Errorf("%w: neighbour %v of %s", errState, n.Addr, i.Name)
		}
		i.neighbours[n.Addr] = &neighbour{mac: n.MAC, static: n.Static, noRoute: n.NoRoute, updated: now.Add(-n.Age)}
		ns.count[forward.FamilyOf(n.Addr)]++
	}
	return nil
}
