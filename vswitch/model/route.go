package model

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/weftnet/weft/vswitch/forward"
)

// maxPaths is the engine's limit of paths per route.
const maxPaths = 64

// RouteChange holds the fields of ip_route_add_del.
type RouteChange struct {
	Table     forward.TableKey
	Prefix    netip.Prefix
	Paths     []Path
	Multipath bool // add or delete Paths only
}

// Route holds the fields of ip_route_details.
type Route struct {
	Prefix netip.Prefix
	Paths  []Path
	Source Source
	Number uint32
}

// Routes are the routes that the API adds to tables.
type Routes struct {
	*barrier
	fib *fib
}

// Add adds or changes a route of the source API and returns its stats index.
func (rs *Routes) Add(c RouteChange) (uint32, error) {
	defer rs.change()()
	written := c.Prefix
	if err := rs.checkLocked(&c); err != nil {
		return NoIndex, err
	}
	if len(c.Paths) == 0 {
		return NoIndex, NoPathsInRoute
	}
	k := routeKey{c.Table, c.Prefix}
	paths := c.Paths
	if e := rs.fib.entry(k); c.Multipath && e != nil {
		paths = mergePaths(e.sources[SourceAPI].paths, paths)
	}
	if err := checkPaths(paths); err != nil {
		return NoIndex, err
	}
	attached := slices.ContainsFunc(paths, func(p Path) bool {
		return p.Kind == PathNormal && p.Interface != NoIndex && !p.NextHop.IsValid()
	})
	return rs.fib.set(k, SourceAPI, fibRoute{paths: paths, attached: attached, written: written}).number, nil
}

// Delete deletes a route of the source API, or with Multipath some of its paths. Missing routes and paths are
// ignored.
func (rs *Routes) Delete(c RouteChange) error {
	defer rs.change()()
	if err := rs.checkLocked(&c); err != nil {
		return err
	}
	k := routeKey{c.Table, c.Prefix}
	if !c.Multipath {
		rs.fib.delete(k, SourceAPI)
		return nil
	}
	if len(c.Paths) == 0 {
		return NoPathsInRoute
	}
	old, ok := rs.fib.route(k, SourceAPI)
	if !ok {
		return nil
	}
	left := slices.DeleteFunc(slices.Clone(old.paths), func(p Path) bool {
		return slices.ContainsFunc(c.Paths, p.same)
	})
	if len(left) == 0 {
		rs.fib.delete(k, SourceAPI)
		return nil
	}
	rs.fib.set(k, SourceAPI, fibRoute{paths: left, attached: old.attached})
	return nil
}

// List lists the routes in use of a table by prefix: the routes of source s, or all for 0.
func (rs *Routes) List(k forward.TableKey, s Source) []Route {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	t := rs.fib.tables[k]
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

// checkLocked validates a change in VPP's order: table, paths, prefix. It removes the host bits of the prefix.
func (rs *Routes) checkLocked(c *RouteChange) error {
	if rs.fib.tables[c.Table] == nil {
		return NoSuchFIB
	}
	for n := range c.Paths {
		if err := rs.checkPathLocked(c.Table.Family, &c.Paths[n]); err != nil {
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

// completeHost sets the host as next hop of an attached path to a host route, as VPP does (fib_table_route_path_fixup).
func (p *Path) completeHost(host netip.Prefix) {
	if p.Kind == PathNormal && p.Interface != NoIndex && !p.NextHop.IsValid() && host.IsSingleIP() &&
		!host.Addr().IsUnspecified() {
		p.NextHop = host.Addr()
	}
}

func (rs *Routes) checkPathLocked(f forward.Family, p *Path) error {
	p.Weight = max(p.Weight, 1)
	if p.Kind != PathNormal {
		return nil
	}
	if p.NextHop.IsValid() && forward.FamilyOf(p.NextHop) != f {
		return FIBPathUnsupportedNextHop
	}
	if p.Interface != NoIndex {
		p.Table = 0
		if rs.fib.interfaces[p.Interface] == nil {
			return NoMatchingInterface
		}
		return nil
	}
	if rs.fib.tables[forward.TableKey{Family: f, ID: p.Table}] == nil {
		return NoSuchFIB
	}
	return nil
}

// checkPaths rejects routes that the packet path does not support: a path that does not forward must be the only one of
// its preference.
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

// mergePaths returns old with the paths of more, which replace the same paths.
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

// restoreLocked restores all routes before it writes any to the engine, because they refer to each other's
// tables.
func (rs *Routes) restoreLocked(s *State) error {
	for n := range s.Tables {
		t := &s.Tables[n]
		for _, r := range t.Routes {
			k := routeKey{t.TableKey, r.Prefix}
			route := fibRoute{attached: r.Attached, written: r.RouteWritten}
			for _, p := range r.Paths {
				route.paths = append(route.paths, p.path())
			}
			if err := rs.fib.restore(k, r, route); err != nil {
				return err
			}
		}
	}
	for k, t := range rs.fib.tables {
		for prefix := range t.entries {
			rs.fib.install(routeKey{k, prefix})
		}
	}
	return nil
}
