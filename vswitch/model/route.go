package model

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/weftnet/weft/vswitch/forward"
)

// maxPaths bounds the paths of a route; the engine takes no more.
const maxPaths = 64

// RouteChange is what ip_route_add_del asks.
type RouteChange struct {
	Table     forward.TableKey
	Prefix    netip.Prefix
	Paths     []Path
	Multipath bool // Paths are added to those there are, or taken from them
}

// Route is what a table says of a prefix.
type Route struct {
	Prefix netip.Prefix
	Paths  []Path
	Source Source
	Number uint32
}

// AddRoute makes the API's route to a prefix or changes it, and returns the entry's number.
func (m *Model) AddRoute(c RouteChange) (uint32, error) {
	defer m.change()()
	written := c.Prefix
	if err := m.checkRouteLocked(&c); err != nil {
		return NoIndex, err
	}
	if len(c.Paths) == 0 {
		return NoIndex, NoPathsInRoute
	}
	k := routeKey{c.Table, c.Prefix}
	paths := c.Paths
	if e := m.entryLocked(k); c.Multipath && e != nil {
		paths = mergePaths(e.sources[SourceAPI].paths, paths)
	}
	if err := checkPaths(paths); err != nil {
		return NoIndex, err
	}
	attached := slices.ContainsFunc(paths, func(p Path) bool {
		return p.Kind == PathNormal && p.Interface != NoIndex && !p.NextHop.IsValid()
	})
	return m.setLocked(k, SourceAPI, fibRoute{paths: paths, attached: attached, written: written}).number, nil
}

// DeleteRoute removes the API's route to a prefix, or of a Multipath change its paths. What is gone is no error.
func (m *Model) DeleteRoute(c RouteChange) error {
	defer m.change()()
	if err := m.checkRouteLocked(&c); err != nil {
		return err
	}
	k := routeKey{c.Table, c.Prefix}
	if !c.Multipath {
		m.dropLocked(k, SourceAPI)
		return nil
	}
	if len(c.Paths) == 0 {
		return NoPathsInRoute
	}
	e := m.entryLocked(k)
	if e == nil {
		return nil
	}
	old, ok := e.sources[SourceAPI]
	if !ok {
		return nil
	}
	left := slices.DeleteFunc(slices.Clone(old.paths), func(p Path) bool { return slices.ContainsFunc(c.Paths, p.same) })
	if len(left) == 0 {
		m.dropLocked(k, SourceAPI)
		return nil
	}
	m.setLocked(k, SourceAPI, fibRoute{paths: left, attached: old.attached})
	return nil
}

// Routes lists a table's routes by prefix: those whose best source is s, or all for 0.
func (m *Model) Routes(k forward.TableKey, s Source) []Route {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.tables[k]
	if t == nil {
		return nil
	}
	var list []Route
	for _, p := range slices.SortedFunc(maps.Keys(t.entries), comparePrefixes) {
		e := t.entries[p]
		if best, r := e.best(); s == 0 || s == best {
			list = append(list, Route{Prefix: e.written, Paths: slices.Clone(r.paths), Source: best, Number: e.number})
		}
	}
	return list
}

func comparePrefixes(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

// checkRouteLocked refuses a change in VPP's order: the table, the paths, the prefix. It takes the host bits off the prefix.
func (m *Model) checkRouteLocked(c *RouteChange) error {
	if m.tables[c.Table] == nil {
		return NoSuchFIB
	}
	for n := range c.Paths {
		if err := m.checkPathLocked(c.Table.Family, &c.Paths[n]); err != nil {
			return err
		}
	}
	if !c.Prefix.IsValid() {
		return InvalidPrefixLength
	}
	if forward.FamilyOf(c.Prefix.Addr()) != c.Table.Family {
		return InvalidAddressFamily
	}
	c.Prefix = c.Prefix.Masked()
	for n := range c.Paths {
		c.Paths[n].completeHost(c.Prefix)
	}
	return nil
}

// completeHost gives a path by an interface to a host the host as its next hop, as VPP does (fib_table_route_path_fixup).
func (p *Path) completeHost(host netip.Prefix) {
	if p.Kind == PathNormal && p.Interface != NoIndex && !p.NextHop.IsValid() && host.IsSingleIP() && !host.Addr().IsUnspecified() {
		p.NextHop = host.Addr()
	}
}

func (m *Model) checkPathLocked(f forward.Family, p *Path) error {
	p.Weight = max(p.Weight, 1)
	if p.Kind != PathNormal {
		return nil
	}
	if p.NextHop.IsValid() && forward.FamilyOf(p.NextHop) != f {
		return FIBPathUnsupportedNextHop
	}
	if p.Interface != NoIndex {
		p.Table = 0
		if m.interfaces[p.Interface] == nil {
			return NoMatchingInterface
		}
		return nil
	}
	if m.tables[forward.TableKey{Family: f, ID: p.Table}] == nil {
		return NoSuchFIB
	}
	return nil
}

// checkPaths refuses what one entry of the packet path cannot be: a path that does not forward beside others of its preference.
func checkPaths(paths []Path) error {
	if len(paths) > maxPaths {
		return LimitExceeded
	}
	for n, p := range paths {
		for _, q := range paths[:n] {
			if (p.Kind != PathNormal || q.Kind != PathNormal) && p.Preference == q.Preference {
				return Unsupported
			}
		}
	}
	return nil
}

// mergePaths are old with each of more added, or put in the place of its like.
func mergePaths(old, more []Path) []Path {
	merged := slices.Clone(old)
	for _, p := range more {
		if n := slices.IndexFunc(merged, p.same); n >= 0 {
			merged[n] = p
		} else {
			merged = append(merged, p)
		}
	}
	return merged
}
