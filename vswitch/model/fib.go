package model

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/weftnet/weft/vswitch/forward"
)

// Source says who made a route. The numbers are VPP's fib_source_t; of several routes to
// one prefix the one with the lowest number is used.
type Source uint8

// The sources that exist here.
const (
	SourceSpecial   Source = 1
	SourceInterface Source = 4
	SourceAPI       Source = 8
	SourceProxyND   Source = 13
	SourceAdjacency Source = 15
	SourceDefault   Source = 20
)

// PathKind says what a path does.
type PathKind uint8

// The kinds of path.
const (
	PathNormal      PathKind = iota
	PathLocal                // received here
	PathDrop                 // dropped
	PathUnreachable          // answered with ICMP unreachable
	PathProhibit             // answered with ICMP prohibited
	PathLinkLocal            // looked up among the link-local addresses of the interface; here as good as dropped
)

// Path is one way of a route.
type Path struct {
	Kind       PathKind
	Interface  uint32     // NoIndex: look NextHop up in Table, or without one the packet's destination
	Table      uint32     // with NoIndex
	NextHop    netip.Addr // invalid: attached
	Weight     uint8
	Preference uint8 // the lowest of the usable ones are used

	gone bool // Interface was deleted; another of its number is not meant
}

// same says whether p and q lead the same way, whatever their weight.
func (p Path) same(q Path) bool {
	p.Weight, q.Weight = 0, 0
	p.Preference, q.Preference = 0, 0
	p.gone, q.gone = false, false
	return p == q
}

// looksUp says whether p sends packets through a table again, without a next hop.
func (p Path) looksUp() bool {
	return p.Kind == PathNormal && p.Interface == NoIndex && !p.NextHop.IsValid()
}

// routeKey names a prefix of a table.
type routeKey struct {
	table  forward.TableKey
	prefix netip.Prefix
}

// fibRoute is what one source wants for a prefix.
type fibRoute struct {
	paths    []Path
	attached bool // the prefix is on the link: it can cover neighbours

	written netip.Prefix // the prefix with its host bits; invalid: it had none
}

func (r fibRoute) equal(s fibRoute) bool {
	return r.attached == s.attached && slices.Equal(r.paths, s.paths)
}

// entry is a prefix in a table.
type entry struct {
	number  uint32       // names it in replies
	written netip.Prefix // as its first source wrote it, with host bits: dumps show that, as in VPP
	sources map[Source]fibRoute
}

// best is the route that is used.
func (e *entry) best() (Source, fibRoute) {
	s := slices.Min(slices.Collect(maps.Keys(e.sources)))
	return s, e.sources[s]
}

// uses says whether any source's route has a path over the interface.
func (e *entry) uses(index uint32) bool {
	for _, r := range e.sources {
		if slices.ContainsFunc(r.paths, func(p Path) bool { return p.Interface == index && !p.gone }) {
			return true
		}
	}
	return false
}

// setLocked gives a source's route to a prefix, in place of the one it had. The table exists.
func (m *Model) setLocked(k routeKey, s Source, r fibRoute) *entry {
	t := m.tables[k.table]
	e := t.entries[k.prefix]
	if e == nil {
		m.lastEntry++
		e = &entry{number: m.lastEntry, written: k.prefix, sources: map[Source]fibRoute{}}
		if r.written.IsValid() {
			e.written = r.written
		}
		t.entries[k.prefix] = e
	}
	old := e.sources[s]
	e.sources[s] = r
	for _, p := range r.paths {
		m.attachPathLocked(k, p)
	}
	m.detachPathsLocked(k, old.paths)
	m.installLocked(k)
	m.coverChangedLocked(k)
	return e
}

// dropLocked takes a source's route from a prefix; one that has none is no error.
func (m *Model) dropLocked(k routeKey, s Source) {
	e := m.entryLocked(k)
	if e == nil {
		return
	}
	old, ok := e.sources[s]
	if !ok {
		return
	}
	delete(e.sources, s)
	m.installLocked(k)
	m.detachPathsLocked(k, old.paths)
	m.coverChangedLocked(k)
}

func (m *Model) entryLocked(k routeKey) *entry {
	if t := m.tables[k.table]; t != nil {
		return t.entries[k.prefix]
	}
	return nil
}

// attachPathLocked notes what the route must be looked at again for.
func (m *Model) attachPathLocked(k routeKey, p Path) {
	if i := m.interfaces[p.Interface]; i != nil && !p.gone {
		i.carries[k] = struct{}{}
	}
	if p.looksUp() {
		m.tables[forward.TableKey{Family: k.table.Family, ID: p.Table}].users++
	}
}

func (m *Model) detachPathsLocked(k routeKey, paths []Path) {
	e := m.entryLocked(k)
	for _, p := range paths {
		if i := m.interfaces[p.Interface]; i != nil && (e == nil || !e.uses(p.Interface)) {
			delete(i.carries, k)
		}
		if p.looksUp() {
			m.releaseTableLocked(forward.TableKey{Family: k.table.Family, ID: p.Table})
		}
	}
}

// installLocked tells the engine what the prefix's best route is now, or that there is none.
func (m *Model) installLocked(k routeKey) {
	e := m.entryLocked(k)
	if e == nil {
		return
	}
	if len(e.sources) == 0 {
		delete(m.tables[k.table].entries, k.prefix)
		m.engine.DelRoute(k.table, k.prefix)
		return
	}
	_, r := e.best()
	if err := m.engine.SetRoute(k.table, k.prefix, m.resolveLocked(k, r)); err != nil {
		m.log.Error("packet path refused a route", "prefix", k.prefix, "table", k.table.ID, "err", err)
	}
}

// resolveLocked is a route as far as it can be used: the most preferred of the paths that lead somewhere now. A path that does not
// forward is alone among those of its preference.
func (m *Model) resolveLocked(k routeKey, r fibRoute) forward.Route {
	drop := forward.Route{Action: forward.Drop}
	var usable []Path
	for _, p := range r.paths {
		switch {
		case !m.usableLocked(k.table.Family, p):
		case len(usable) > 0 && p.Preference > usable[0].Preference:
		case len(usable) > 0 && p.Preference < usable[0].Preference:
			usable = append(usable[:0], p)
		default:
			usable = append(usable, p)
		}
	}
	if len(usable) == 0 {
		return drop
	}
	if kind := usable[0].Kind; kind != PathNormal {
		return forward.Route{Action: actions[kind]}
	}
	out := forward.Route{Action: forward.Forward}
	for _, p := range usable {
		out.Paths = append(out.Paths, forward.Path{Interface: p.Interface, NextHop: p.NextHop, Table: p.Table, Weight: p.Weight})
	}
	return out
}

// actions are what the kinds of path but PathNormal mean for the engine.
var actions = [...]forward.Action{
	PathLocal:       forward.Local,
	PathDrop:        forward.Drop,
	PathUnreachable: forward.Unreachable,
	PathProhibit:    forward.Prohibit,
	PathLinkLocal:   forward.Drop,
}

func (m *Model) usableLocked(f forward.Family, p Path) bool {
	if p.Kind != PathNormal {
		return true
	}
	if p.Interface == NoIndex {
		return m.tables[forward.TableKey{Family: f, ID: p.Table}] != nil
	}
	i := m.interfaces[p.Interface]
	return i != nil && !p.gone && i.AdminUp && i.LinkUp
}

// reviewLocked installs again what leads over an interface whose state has changed.
func (m *Model) reviewLocked(i *iface) {
	for k := range i.carries {
		m.installLocked(k)
	}
}

// abandonLocked leaves the routes over an interface that goes without that path. They stay in
// their tables, as in VPP, until their owner removes them.
func (m *Model) abandonLocked(i *iface) {
	for k := range i.carries {
		for s, r := range m.entryLocked(k).sources {
			paths := slices.Clone(r.paths)
			for n := range paths {
				paths[n].gone = paths[n].gone || paths[n].Interface == i.Index
			}
			m.entryLocked(k).sources[s] = fibRoute{paths: paths, attached: r.attached}
		}
		m.installLocked(k)
	}
	clear(i.carries)
}

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
